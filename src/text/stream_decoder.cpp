#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace slideway {

std::string Tokenizer::token_bytes(std::int32_t id) const {
  return parts_->token_text.of(parts_->decoded_token(id), false).bytes;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder stream(*this, skip_special_tokens);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  return text += stream.finish();
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(std::int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
  const std::string_view token = tokenizer_->parts_->decoded_token(id);
  if (token.empty()) return {};
  const TokenText& rules = tokenizer_->parts_->token_text;
  TokenText::Bytes next = rules.of(token, first_);
  first_ = false;
  if (!rules.byte_level() && !next.is_byte_token) {  // text by itself: what waits will not be completed
    return trim_start(replacement_of(std::exchange(waiting_, {}).size()) + next.bytes);
  }
  waiting_ += next.bytes;
  return trim_start(take_whole_characters());
}

std::string StreamDecoder::finish() {
  std::string text = trim_start(waiting_.empty() ? "" : replacement_of(waiting_.size()));
  *this = StreamDecoder(*tokenizer_, skip_special_tokens_);
  return text;
}

// All but the beginning of a character at the end.
std::string StreamDecoder::take_whole_characters() {
  std::string text;
  std::string_view left = waiting_;
  while (!left.empty()) {
    const Utf8Start start = utf8_start(left);
    if (start.kind == Utf8Start::cut) break;
    if (start.kind == Utf8Start::whole) {
      text += left.substr(0, start.bytes);
    } else {
      text += replacement_of(start.bytes);
    }
    left.remove_prefix(start.bytes);
  }
  waiting_.erase(0, waiting_.size() - left.size());
  return text;
}

std::string StreamDecoder::replacement_of(std::size_t bytes) const {
  if (tokenizer_->parts_->token_text.byte_level()) bytes = bytes > 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) append_utf8(text, 0xFFFD);
  return text;
}

std::string StreamDecoder::trim_start(std::string text) {
  const TokenText& rules = tokenizer_->parts_->token_text;
  while (trimming_ && !text.empty()) {
    trimming_ = trimmed_ < rules.trim_count() && text.starts_with(rules.trim());
    if (!trimming_) break;
    text.erase(0, rules.trim().size());
    ++trimmed_;
  }
  return text;
}

}  // namespace slideway
