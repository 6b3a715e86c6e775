// Normalizer: what a tokenizer.json does to a text before it is cut, such as NFC or a mark in place of spaces.
//
// Threads  const calls from any number of threads
// Source   Unicode normalisation by utf8proc
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"
#include "text/pattern.h"
#include "text/tokenizer_spec.h"

namespace slideway {

class Normalizer {
 public:
  explicit Normalizer(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  void run(AlignedText& text, PatternScratch& scratch) const;
  std::string run(std::string_view text, PatternScratch& scratch) const;

 private:
  struct Step {
    NormalizerStep is;
    Pattern pattern;
  };
  std::vector<Step> steps_;
};

}  // namespace slideway
