// Bpe: the tokens of one word. Its characters are merged pair by pair, the pair of the lowest rank first and, of equal
// ones, the leftmost, until no pair of neighbours has a merge.
//
// The pairs wait in a heap, so that a word of n characters costs O(n log n): a megabyte without a space is one word.
//
// Threads  const calls from any number of threads, each with its own scratch
// Errors   corrupt (a merge of tokens that the vocabulary lacks)
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace slideway {

class Bpe {
 public:
  struct Symbol {
    std::int32_t id;
    std::uint32_t bytes;  // of the word; 0: merged into its left neighbour
    std::int32_t previous, next;
  };
  struct Candidate {
    std::uint64_t rank_and_place;
    std::int32_t merged;
  };
  struct Scratch {
    WordCache cache;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::vector<WordToken> tokens;
    std::string spelled;
  };

  // byte_level: a word is bytes, which the vocabulary spells in the byte alphabet. not_words: ids that ignore_merges
  // must not find whole, because they are control tokens.
  Bpe(BpeSpec spec, bool byte_level, std::span<const std::int32_t> not_words);

  // Valid until the next call with this scratch.
  std::span<const WordToken> encode(std::string_view word, Scratch& scratch) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    std::uint64_t pair = UINT64_MAX;
    std::uint32_t rank = 0;
    std::int32_t merged = -1;
  };
  void add_merge(std::uint64_t pair, std::uint32_t rank, std::int32_t merged);
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  std::int32_t find_whole(std::string_view word, Scratch& scratch) const;
  void spell(std::string_view word, std::vector<Symbol>& symbols) const;
  void spell_unknown(std::string_view character, std::uint32_t bytes, std::vector<Symbol>& symbols) const;
  void consider(std::int32_t left, Scratch& scratch) const;
  void merge(Scratch& scratch) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;                         // open addressing
  std::vector<std::int32_t> of_byte_, of_character_;  // id or −1; characters below U+0180
  std::vector<std::int32_t> fallback_;                // ids of <0x00> … <0xFF>, −1: not there
  std::vector<bool> not_word_;
  std::string unk_token_;
  std::int32_t unk_ = -1;
  bool byte_level_, fuse_unk_, byte_fallback_, ignore_merges_;
};

}  // namespace slideway
