#include "serve/access.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "core/error.h"
#include "formats/json.h"

namespace slideway {
namespace {

std::string digest(std::string_view key) {
  unsigned char out[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), out);
  return {reinterpret_cast<const char*>(out), sizeof out};
}

std::string from_base64(std::string_view text) {
  std::string out(text.size() / 4 * 3 + 3, '\0');
  if (text.empty() || text.size() % 4 != 0) return {};
  const int bytes = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                    reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  if (bytes < 0) return {};
  out.resize(std::size_t(bytes) - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  return out;
}

bool begins_with_word(std::string_view text, std::string_view word) {
  if (text.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if ((text[i] | 0x20) != (word[i] | 0x20)) return false;
  return true;
}

std::string key_of(std::string_view authorization) {
  for (const std::string_view scheme : {"Bearer ", "Basic "}) {
    if (!begins_with_word(authorization, scheme)) continue;
    authorization.remove_prefix(scheme.size());
    while (authorization.starts_with(' ')) authorization.remove_prefix(1);
    if (scheme == "Bearer ") return std::string(authorization);
    const std::string user_and_key = from_base64(authorization);
    const std::size_t colon = user_and_key.find(':');
    return colon == std::string::npos ? std::string() : user_and_key.substr(colon + 1);
  }
  return {};
}

AccessKey access_key_of(const Json& row, const std::string& where, std::string& key) {
  const auto wrong = [&](const std::string& name, const char* expected) {
    fail(ErrorKind::invalid_input, where, ": ", name, " should be ", expected);
  };
  if (!row.is_object()) fail(ErrorKind::invalid_input, where, ": expected an object");
  AccessKey out;
  for (const auto& [name, value] : row.items()) {
    if (name == "key" || name == "name") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) wrong(name, "a text");
      (name == "key" ? key : out.name) = value;
    } else if (name == "admin" || name == "base") {
      if (!value.is_boolean()) wrong(name, "true or false");
      (name == "admin" ? out.admin : out.base) = value.get<bool>();
    } else if (name == "adapters") {
      if (!value.is_array()) wrong(name, "a list of names");
      out.adapters.emplace();
      for (const Json& adapter : value) {
        if (!adapter.is_string()) wrong(name, "a list of names");
        out.adapters->push_back(adapter);
      }
    } else {
      fail(ErrorKind::invalid_input, where, ": there is no field ", name,
           "; there are key, name, admin, base, adapters");
    }
  }
  if (key.empty()) fail(ErrorKind::invalid_input, where, ": key is missing");
  return out;
}

}  // namespace

bool AccessKey::may_use(std::string_view adapter) const {
  if (!adapters) return true;
  for (const std::string& allowed : *adapters) {
    if (allowed == adapter) return true;
    if (allowed.ends_with('*') &&
        adapter.starts_with(std::string_view(allowed).substr(0, allowed.size() - 1)))
      return true;
  }
  return false;
}

void Access::add_key(std::string_view key, AccessKey what) {
  if (key.empty()) fail(ErrorKind::invalid_input, "a key is empty");
  if (what.name.empty()) what.name = (what.admin ? "admin-" : "key-") + std::to_string(keys_.size() + 1);
  if (!keys_.emplace(digest(key), std::move(what)).second)
    fail(ErrorKind::invalid_input, "the same key is given twice");
}

void Access::add_file(const std::filesystem::path& file) {
  const Json rows = load_json(file);
  if (!rows.is_array()) fail(ErrorKind::invalid_input, file.string(), ": expected an array of keys");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string key;
    const std::string where = file.string() + "[" + std::to_string(i) + "]";
    AccessKey what = access_key_of(rows[i], where, key);
    add_key(key, std::move(what));
  }
}

bool Access::has_admin() const {
  for (const auto& [digest, key] : keys_)
    if (key.admin) return true;
  return false;
}

const AccessKey* Access::find(std::string_view authorization) const {
  const auto found = keys_.find(digest(key_of(authorization)));
  return found == keys_.end() ? nullptr : &found->second;
}

}  // namespace slideway
