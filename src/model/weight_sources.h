// Where weights come from: the two kinds of WeightFiles.
#pragma once

#include "model/weights.h"

namespace slideway {

std::unique_ptr<WeightFiles> open_hf_folder(const std::filesystem::path& folder);
std::unique_ptr<WeightFiles> open_gguf(const std::filesystem::path& path);

}  // namespace slideway
