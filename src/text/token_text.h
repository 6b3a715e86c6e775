// TokenText: what a token adds to the text, by the decoder of tokenizer.json.
//
// The file's decoder is a chain that runs over all tokens at once. Here each of its steps is applied to one token, which
// is the same for every chain that is accepted, and lets a stream go on token by token.
//
// Errors  unsupported: a chain for which it would not be the same
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace slideway {

class TokenText {
 public:
  struct Bytes {
    std::string bytes;
    bool is_byte_token = false;  // <0x00> … <0xFF>
  };

  explicit TokenText(const std::vector<DecoderStep>& steps);

  Bytes of(std::string_view token, bool is_first) const;

  // Bytes of all tokens are one sequence, in which what is no UTF-8 becomes one U+FFFD a maximal subpart; otherwise each
  // wrong byte of byte tokens becomes one, and other tokens are text by themselves.
  bool byte_level() const { return byte_level_; }
  // Taken from the start of the whole text, at most trim_count() times.
  const std::string& trim() const { return trim_; }
  std::size_t trim_count() const { return trim_count_; }

 private:
  std::vector<DecoderStep> steps_;
  bool byte_level_ = false;
  std::string trim_;
  std::size_t trim_count_ = 0;
};

}  // namespace slideway
