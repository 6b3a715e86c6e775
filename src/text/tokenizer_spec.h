// TokenizerSpec: what a tokenizer.json says, as plain rows. The reader fills them, the parts of the tokenizer run them.
//
// A Sequence in the file is several rows here. Kinds that are not named here are refused by the reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocabulary.h"

namespace slideway {

// {"String": …} or {"Regex": …}.
struct PatternSpec {
  std::string text;
  bool is_regex = false;
};

struct NormalizerStep {
  enum Kind { nfc, nfd, nfkc, nfkd, lowercase, replace, prepend, strip } kind;
  PatternSpec pattern;               // replace
  std::string content;               // replace, prepend
  bool left = false, right = false;  // strip
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
enum class PrependScheme { always, never, first };

struct PreTokenizerStep {
  enum Kind { split, digits, punctuation, metaspace, byte_level } kind;
  PatternSpec pattern;                                  // split
  SplitBehavior behavior = SplitBehavior::isolated;     // split, punctuation
  bool invert = false;                                  // split: what does not match is the delimiter
  bool individual_digits = false;                       // digits
  bool add_prefix_space = false, use_regex = false;     // byte_level
  std::string replacement;                              // metaspace: one character in place of a space
  PrependScheme prepend_scheme = PrependScheme::never;  // metaspace
  bool split_words = false;                             // metaspace
};

struct DecoderStep {
  enum Kind { byte_level, replace, byte_fallback, fuse, strip, metaspace } kind;
  std::string pattern, content;     // replace, always of plain text; strip and metaspace: content
  std::size_t start = 0, stop = 0;  // strip: at most so many
  bool drop_first = false;          // metaspace: the first token loses its marks
};

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

struct BpeSpec {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // by rank; of the text that was read
  std::string unk_token;                                              // empty: none
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
};

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  BpeSpec bpe;
  std::vector<std::int32_t> prefix, suffix;  // what the post-processor puts around a text
  std::vector<DecoderStep> decoder;
};

}  // namespace slideway
