#include "train/manifest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace slideway {
namespace {

using Json = nlohmann::ordered_json;

std::string sha256_of(const fs::path& path) {
  const File file = File::open_read(path);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  CHECK(hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1);
  std::vector<std::byte> piece(std::size_t(4) << 20);
  const std::uint64_t bytes = file.bytes();
  for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::size_t(std::min<std::uint64_t>(piece.size(), bytes - at)));
    file.read_at(at, part);
    EVP_DigestUpdate(hash.get(), part.data(), part.size());
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_bytes = 0;
  EVP_DigestFinal_ex(hash.get(), digest, &digest_bytes);
  std::string text;
  for (unsigned int i = 0; i < digest_bytes; ++i) {
    constexpr char kHex[] = "0123456789abcdef";
    text += kHex[digest[i] >> 4];
    text += kHex[digest[i] & 15];
  }
  return text;
}

}  // namespace

void write_manifest(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != kManifestName) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  Json files = Json::array();
  for (const fs::path& path : paths)
    files.push_back({{"file", fs::relative(path, folder).generic_string()},
                     {"bytes", fs::file_size(path)},
                     {"sha256", sha256_of(path)}});
  write_text_atomically(folder / kManifestName, Json{{"version", 1}, {"files", files}}.dump(2) + "\n");
}

std::string manifest_fault(const fs::path& folder, bool contents) {
  if (!fs::exists(folder / kManifestName)) return std::string("it has no ") + kManifestName;
  try {
    const Json manifest = Json::parse(read_text(folder / kManifestName));
    for (const Json& file : manifest.at("files")) {
      const std::string name = file.at("file");
      const fs::path path = folder / name;
      if (!fs::exists(path)) return name + " is missing";
      const std::uint64_t bytes = file.at("bytes"), found = fs::file_size(path);
      if (found != bytes)
        return name + " has " + std::to_string(found) + " bytes in place of " + std::to_string(bytes);
      if (contents && sha256_of(path) != file.at("sha256").get<std::string>())
        return name + " does not match its SHA-256";
    }
  } catch (const Json::exception& error) {
    return std::string(kManifestName) + " is not readable: " + error.what();
  }
  return "";
}

}  // namespace slideway
