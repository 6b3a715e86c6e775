// WordCache: the tokens of words that were merged before. Most text is made of few words.
//
// Bounded, about 6 MiB: an entry gives way to a newer one of the same set, and all of them when the bytes run out.
// Threads  one at a time
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace slideway {

// A token of a word, and how many bytes of the word it covers.
struct WordToken {
  std::int32_t id;
  std::uint32_t bytes;
};

class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 64;  // bytes

  // Empty: unknown (a word has at least one token, or is not worth remembering).
  std::span<const WordToken> find(std::string_view word, std::uint64_t hash) const {
    if (slots_.empty()) return {};
    const Slot* set = &slots_[hash & (kSlots - kWays)];
    for (std::size_t way = 0; way < kWays; ++way) {
      const Slot& slot = set[way];
      // Bytes are compared, however rare it is that they differ here: one tenant's word must not pass for another's.
      if (slot.hash == hash && slot.word_bytes == word.size() &&
          std::memcmp(words_.data() + slot.word, word.data(), word.size()) == 0) {
        return {tokens_.data() + slot.tokens, slot.count};
      }
    }
    return {};
  }
  void insert(std::string_view word, std::uint64_t hash, std::span<const WordToken> tokens);

 private:
  static constexpr std::size_t kSlots = 1 << 17, kWays = 4;
  static constexpr std::size_t kMostBytes = 1 << 20, kMostTokens = 1 << 18;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word = 0, tokens = 0;
    std::uint16_t word_bytes = 0, count = 0;
  };
  std::vector<Slot> slots_;
  std::vector<char> words_;
  std::vector<WordToken> tokens_;
};

}  // namespace slideway
