// Unicode as the tokenizer needs it: UTF-8 read and written, bad bytes replaced, two classes of characters.
//
// Source  the Unicode standard, chapter 3.9 (maximal subparts become one U+FFFD each), as Rust's from_utf8_lossy
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slideway {

// The character at `at`, which is moved past it. The text must be valid UTF-8.
char32_t next_character(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, char32_t character);

bool is_valid_utf8(std::string_view bytes);
std::string replace_invalid_utf8(std::string_view bytes);

// How bytes begin: a whole character, bytes that no character begins with, or the start of one that is cut off.
struct Utf8Start {
  enum Kind { whole, invalid, cut } kind;
  std::size_t bytes;
};
Utf8Start utf8_start(std::string_view bytes);  // of at least one byte

bool is_white_space(char32_t character);
bool is_word_character(char32_t character);  // letters, marks, digits, connectors: \w of Rust's regex

}  // namespace slideway
