#include "serve/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace slideway {

void notify_service(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{.sun_family = AF_UNIX};
  if (!path || (*path != '/' && *path != '@') || std::strlen(path) >= sizeof address.sun_path) return;
  std::strcpy(address.sun_path, path);
  const auto bytes = socklen_t(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (*path == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  // Nobody can be told that telling failed.
  (void)!sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
                bytes);
  close(descriptor);
}

}  // namespace slideway
