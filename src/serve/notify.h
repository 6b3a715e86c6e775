// Tells the service manager how this process is, where it asks for that (systemd's Type=notify, $NOTIFY_SOCKET).
#pragma once

#include <string_view>

namespace slideway {

void notify_service(std::string_view state);  // "READY=1", "STOPPING=1"

}  // namespace slideway
