// Access: who may do what, by the key a request carries.
//
// Keys come from a file or the environment. A key may be held to some adapters; any other is then not found for it, as
// though it did not exist. Loading and unloading need an admin's key. Once there is any key, every route but health
// needs one; while there is none, everything is open, but loading and unloading only on a loopback address.
//
// A key file is a JSON array: [{"key": "…", "name": "team a", "adapters": ["x", "legal/*"], "base": false},
// {"key": "…", "admin": true}]. adapters: names, or beginnings of names before a *; absent: all. base: whether the base
// model may be asked (default: true).
//
// A key is sent as "Authorization: Bearer KEY", or as the password of "Basic", which is what a browser asks for.
//
// Threads  const calls from any number of threads
// Errors   invalid_input: a key file that says something else
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slideway {

struct AccessKey {
  std::string name;  // for logs; never the key
  bool admin = false;
  bool base = true;
  std::optional<std::vector<std::string>> adapters;

  bool may_use(std::string_view adapter) const;
};

class Access {
 public:
  void add_key(std::string_view key, AccessKey what);
  void add_file(const std::filesystem::path& file);

  bool open() const { return keys_.empty(); }
  bool has_admin() const;
  // The key in an Authorization header; null where there is none, or none that is known.
  const AccessKey* find(std::string_view authorization) const;

 private:
  std::map<std::string, AccessKey>
      keys_;  // by SHA-256 of the key, so that looking one up tells nothing about it
};

}  // namespace slideway
