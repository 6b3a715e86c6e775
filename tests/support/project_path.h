// project_path: a file of the project, wherever the tests are run from.
#pragma once

#include <filesystem>

namespace slideway {

inline std::filesystem::path project_path(const std::filesystem::path& relative) {
  return std::filesystem::path(SLIDEWAY_SOURCE_DIR) / relative;
}

}  // namespace slideway
