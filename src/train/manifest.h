// Manifest: the last file of a checkpoint folder: every other file's size and SHA-256.
//
// Threads  any
// Errors   io
#pragma once

#include <filesystem>
#include <string>

namespace slideway {

inline constexpr const char* kManifestName = "manifest.json";

// Lists every file of folder, syncing none: the folder's writer does that.
void write_manifest(const std::filesystem::path& folder);

// Empty when the folder is whole, else why it is not: a file that is missing, cut short or (with contents) changed.
std::string manifest_fault(const std::filesystem::path& folder, bool contents);

}  // namespace slideway
