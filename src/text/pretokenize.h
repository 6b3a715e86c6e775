// PreTokenizer: cuts a normalised text into the words inside which tokens are merged.
//
// Threads  const calls from any number of threads, each with its own scratch
// Errors   unsupported: an order of steps that no known file has
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"
#include "text/pattern.h"
#include "text/tokenizer_spec.h"

namespace slideway {

// GPT-2's pattern, which a ByteLevel step with use_regex means.
extern const char* const kGpt2Pattern;

class PreTokenizer {
 public:
  struct Scratch {
    PatternScratch pattern;
    std::vector<Span> matches, cut;
  };

  explicit PreTokenizer(const std::vector<PreTokenizerStep>& steps);

  // Words are bytes, each to be spelled in the byte alphabet.
  bool byte_level() const { return byte_level_; }
  // Fills words with spans of text, which may be rewritten (a mark in place of spaces). at_start: the text is the
  // beginning of what was given to encode.
  void run(AlignedText& text, bool at_start, Scratch& scratch, std::vector<Span>& words) const;

 private:
  struct Step {
    std::optional<Pattern> pattern;  // none: no cut
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    std::string replacement;  // not empty: in place of each space
    std::string prefix;       // what a word must begin with
    bool prefix_at_start_only = false;
  };
  static Step step_of(const PreTokenizerStep& is);
  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace slideway
