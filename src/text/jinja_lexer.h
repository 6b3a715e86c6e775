// Cuts a template into tokens, with whitespace control as transformers sets it: a newline after a block is dropped
// (trim_blocks), blanks before a block that begins its line too (lstrip_blocks), and "-" and "+" inside the marks.
//
// Errors   corrupt, with line and column
#pragma once

#include <string>
#include <vector>

#include "text/jinja_syntax.h"

namespace slideway {

struct JinjaToken {
  enum class Kind : std::uint8_t {
    data,
    output_begin,
    output_end,
    block_begin,
    block_end,
    name,
    string,
    number,
    op,
    end
  };
  Kind kind;
  std::size_t at;
  std::string text;  // data, name, string (unescaped) or operator
  JinjaValue value;  // of numbers
};

// Reads newlines as Python does; corrupt where the text is not UTF-8.
JinjaSource make_jinja_source(const std::string& text);
std::vector<JinjaToken> tokenize_jinja(const JinjaSource& source);  // the last one is `end`

}  // namespace slideway
