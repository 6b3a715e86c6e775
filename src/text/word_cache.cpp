#include "text/word_cache.h"

namespace slideway {

void WordCache::insert(std::string_view word, std::uint64_t hash, std::span<const WordToken> tokens) {
  if (word.size() > kLongestWord || tokens.empty()) return;
  if (slots_.empty() || words_.size() + word.size() > kMostBytes ||
      tokens_.size() + tokens.size() > kMostTokens) {
    slots_.assign(kSlots, Slot{});
    words_.clear();
    tokens_.clear();
  }
  Slot* set = &slots_[hash & (kSlots - kWays)];
  std::size_t way = 0;
  while (way < kWays && set[way].count > 0) ++way;
  if (way == kWays) way = hash >> 60 & (kWays - 1);
  set[way] = {hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(tokens_.size()),
              static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(tokens.size())};
  words_.insert(words_.end(), word.begin(), word.end());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace slideway
