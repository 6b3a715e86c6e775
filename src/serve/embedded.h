// Files of src/serve that the program carries: made into embedded.cpp when it is built.
#pragma once

#include <string_view>

namespace slideway {

extern const std::string_view kStatusPage;  // status_page.html
extern const std::string_view kOpenApi;     // openapi.json

}  // namespace slideway
