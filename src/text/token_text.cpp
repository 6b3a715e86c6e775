#include "text/token_text.h"

#include "core/error.h"
#include "text/byte_alphabet.h"

namespace slideway {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte of <0xE2>, −1: another token.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void replace_all(std::string& text, const std::string& pattern, const std::string& content) {
  if (pattern.empty()) return;
  for (std::size_t at = text.find(pattern); at != text.npos; at = text.find(pattern, at + content.size())) {
    text.replace(at, pattern.size(), content);
  }
}

void strip(std::string& text, const DecoderStep& step) {
  const std::size_t mark = step.content.size();
  for (std::size_t i = 0; i < step.start && text.starts_with(step.content); ++i) text.erase(0, mark);
  for (std::size_t i = 0; i < step.stop && text.ends_with(step.content); ++i) text.resize(text.size() - mark);
}

[[noreturn]] void refuse(const char* what) {
  fail(ErrorKind::unsupported, "decoder: ", what,
       " is not supported: text could not be decoded token by token");
}

}  // namespace

TokenText::TokenText(const std::vector<DecoderStep>& steps) {
  bool fused = false;
  for (const DecoderStep& step : steps) {
    switch (step.kind) {
      case DecoderStep::fuse:
        fused = true;
        continue;
      case DecoderStep::byte_level:
        if (byte_level_) refuse("ByteLevel twice");
        byte_level_ = fused = true;
        break;
      case DecoderStep::strip:
        if (!fused) break;
        if (step.stop > 0) refuse("Strip at the end of the whole text");
        if (trim_count_ > 0) refuse("Strip of the whole text twice");
        trim_ = step.content;
        trim_count_ = step.start;
        continue;
      case DecoderStep::replace:
        if (fused && trim_count_ > 0) refuse("Replace after Strip of the whole text");
        if (fused && step.pattern.size() > utf8_start(step.pattern).bytes) {
          refuse("Replace of several characters in the whole text");
        }
        break;
      case DecoderStep::metaspace:
        if (fused) refuse("Metaspace after Fuse");
        break;
      case DecoderStep::byte_fallback:
        if (fused) refuse("ByteFallback after Fuse");
        break;
    }
    steps_.push_back(step);
  }
}

TokenText::Bytes TokenText::of(std::string_view token, bool is_first) const {
  Bytes out{std::string(token)};
  for (const DecoderStep& step : steps_) {
    if (out.is_byte_token) break;
    switch (step.kind) {
      case DecoderStep::replace:
        replace_all(out.bytes, step.pattern, step.content);
        break;
      case DecoderStep::strip:
        strip(out.bytes, step);
        break;
      case DecoderStep::metaspace:
        replace_all(out.bytes, step.content, is_first && step.drop_first ? "" : " ");
        break;
      case DecoderStep::byte_fallback:
        if (const int byte = byte_of(out.bytes); byte >= 0)
          out = {std::string(1, static_cast<char>(byte)), true};
        break;
      case DecoderStep::byte_level: {
        std::string bytes;
        if (byte_alphabet::append_bytes(bytes, out.bytes)) out.bytes = std::move(bytes);
        break;
      }
      case DecoderStep::fuse:
        break;
    }
  }
  return out;
}

}  // namespace slideway
