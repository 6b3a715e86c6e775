// Vocabulary: tokens as the file spells them, by id and by text.
//
// Threads  const calls from any number of threads
// Errors   corrupt
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace slideway {

inline std::uint64_t hash_bytes(std::string_view bytes) {
  const auto mix = [](std::uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
  };
  std::uint64_t hash = bytes.size() * 0xD6E8FEB86659FD93u;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word);
  }
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < left; ++i) rest = rest << 8 | static_cast<unsigned char>(at[i]);
  return mix(hash ^ rest);
}

class Vocabulary {
 public:
  void reserve(std::size_t tokens, std::size_t bytes);
  // Ids need not come in order and may leave gaps, but have one token each; a token has one id.
  void add(std::string_view token, std::int32_t id);

  std::int32_t find(std::string_view token) const;  // −1: not there
  bool has(std::int32_t id) const;
  std::string_view token(std::int32_t id) const;                                    // empty for a gap
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }  // the largest id + 1

 private:
  static constexpr std::uint32_t kGap = UINT32_MAX;
  struct Entry {
    std::uint32_t at = 0, bytes = kGap;
  };
  std::size_t slot_of(std::string_view token) const;
  void grow(std::size_t slots);

  std::string text_;                 // all tokens, one after another
  std::vector<Entry> entries_;       // by id
  std::vector<std::int32_t> slots_;  // open addressing, −1: free
  std::size_t count_ = 0;
};

}  // namespace slideway
