// The byte alphabet of byte-level BPE: each byte has one printable character that stands for it in the files.
//
// Printable Latin-1 bytes stand for themselves; the other 68 are numbered from U+0100 in ascending order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace slideway {

namespace byte_alphabet {

constexpr std::size_t kEnd = 0x100 + 68;  // no character of the alphabet lies above

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr std::array<std::uint16_t, 256> kCharacterOfByte = [] {
  std::array<std::uint16_t, 256> table{};
  std::uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    table[static_cast<std::size_t>(byte)] =
        stands_for_itself(byte) ? static_cast<std::uint16_t>(byte) : next++;
  }
  return table;
}();

constexpr std::array<std::int16_t, kEnd> kByteOfCharacter = [] {
  std::array<std::int16_t, kEnd> table{};
  for (auto& byte : table) byte = -1;
  for (std::size_t byte = 0; byte < 256; ++byte)
    table[kCharacterOfByte[byte]] = static_cast<std::int16_t>(byte);
  return table;
}();

inline void append_spelled(std::string& out, std::string_view bytes) {
  for (const char c : bytes) append_utf8(out, kCharacterOfByte[static_cast<unsigned char>(c)]);
}

// The bytes that a token's text stands for; false (and nothing appended) if a character is not of the alphabet.
inline bool append_bytes(std::string& out, std::string_view token) {
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < token.size();) {
    const char32_t c = next_character(token, at);
    if (c >= kEnd || kByteOfCharacter[c] < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(kByteOfCharacter[c]);
  }
  return true;
}

}  // namespace byte_alphabet
}  // namespace slideway
