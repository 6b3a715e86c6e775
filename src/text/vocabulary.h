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

template <class Word>
Word read_word(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline std::uint64_t hash_bytes(std::string_view bytes) {
  const auto mix = [](std::uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
  };
  const std::size_t size = bytes.size();
  const char* const begin = bytes.data();
  std::uint64_t hash = size * 0xD6E8FEB86659FD93u, last = 0;
  if (size >= 8) {
    for (std::size_t i = 0; i + 8 < size; i += 8) hash = mix(hash ^ read_word<std::uint64_t>(begin + i));
    last = read_word<std::uint64_t>(begin + size - 8);
  } else if (size >= 4) {
    last = static_cast<std::uint64_t>(read_word<std::uint32_t>(begin)) << 32 |
           read_word<std::uint32_t>(begin + size - 4);
  } else {
    for (std::size_t i = 0; i < size; ++i) last = last << 8 | static_cast<unsigned char>(begin[i]);
  }
  return mix(hash ^ last);
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
