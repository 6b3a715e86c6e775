#include "text/unicode.h"

#include <simdjson.h>
#include <utf8proc.h>

namespace slideway {

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const char32_t lead = byte(0);
  char32_t character = lead;
  std::size_t bytes = 1;
  if (lead >= 0xF0) {
    character = (lead & 7) << 18 | (byte(1) & 63u) << 12 | (byte(2) & 63u) << 6 | (byte(3) & 63u);
    bytes = 4;
  } else if (lead >= 0xE0) {
    character = (lead & 15) << 12 | (byte(1) & 63u) << 6 | (byte(2) & 63u);
    bytes = 3;
  } else if (lead >= 0x80) {
    character = (lead & 31) << 6 | (byte(1) & 63u);
    bytes = 2;
  }
  at += bytes;
  return character;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

bool is_valid_utf8(std::string_view bytes) {
  return simdjson::validate_utf8(bytes.data(), bytes.size());
}

Utf8Start utf8_start(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Start::whole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Start::invalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and what lies above U+10FFFF.
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Start::cut, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Start::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Start::whole, length};
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 8);
  while (!bytes.empty()) {
    const Utf8Start start = utf8_start(bytes);
    if (start.kind == Utf8Start::whole) {
      out += bytes.substr(0, start.bytes);
    } else {
      append_utf8(out, 0xFFFD);
    }
    bytes.remove_prefix(start.bytes);
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // letters in circles and squares are alphabetic, the two joiners count as well
      return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
  }
}

}  // namespace slideway
