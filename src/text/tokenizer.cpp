#include "text/tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace slideway {
namespace {

std::vector<std::int32_t> ids_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const AddedToken& token : tokens) ids.push_back(token.id);
  return ids;
}

void check_length(std::size_t bytes) {
  if (bytes > INT32_MAX)
    fail(ErrorKind::invalid_input, "a text of ", bytes, " bytes; less than 2 GiB can be encoded");
}

}  // namespace

Tokenizer::Parts::Parts(TokenizerSpec spec, std::string json)
    : json(std::move(json)),
      prefix(std::move(spec.prefix)),
      suffix(std::move(spec.suffix)),
      normalizer(spec.normalizer),
      pre_tokenizer(spec.pre_tokenizer),
      bpe(std::move(spec.bpe), pre_tokenizer.byte_level(), ids_of(spec.added_tokens)),
      token_text(spec.decoder) {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_found, normalized_found;
  const auto scratch = std::make_unique<PatternScratch>();
  special.resize(static_cast<std::size_t>(bpe.vocabulary().size()));
  for (AddedToken& token : spec.added_tokens) {
    const std::int32_t known = bpe.vocabulary().find(token.content);
    const std::string_view other = bpe.vocabulary().token(token.id);
    if ((known >= 0 && known != token.id) || (!other.empty() && other != token.content) ||
        !added_ids.emplace(token.content, token.id).second ||
        !added_texts.emplace(token.id, token.content).second) {
      fail(ErrorKind::corrupt, "added_tokens: ", token.content, " has id ", token.id,
           ", but the token or the id stands for something else in this file as well");
    }
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= special.size()) special.resize(id + 1);
    special[id] = token.special;
    if (token.normalized) {
      normalized_found.push_back(normalizer.run(token.content, *scratch));
      normalized_texts.emplace(token.id, normalized_found.back());
      normalized.push_back(std::move(token));
    } else {
      raw_found.push_back(token.content);
      raw.push_back(std::move(token));
    }
  }
  added_raw = std::make_unique<AddedTokens>(std::move(raw), raw_found);
  added_normalized = std::make_unique<AddedTokens>(std::move(normalized), normalized_found);
  for (const TokenIds* ids : {&prefix, &suffix}) {
    for (const std::int32_t id : *ids) {
      if (token(id).empty()) fail(ErrorKind::corrupt, "post_processor: id ", id, " has no token");
    }
  }
}

std::unique_ptr<Tokenizer::Parts::Scratch> Tokenizer::Parts::borrow() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void Tokenizer::Parts::give_back(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

std::string_view Tokenizer::Parts::token(std::int32_t id) const {
  const auto added = added_texts.find(id);
  return added != added_texts.end() ? std::string_view(added->second) : bpe.vocabulary().token(id);
}

std::string_view Tokenizer::Parts::decoded_token(std::int32_t id) const {
  const auto text = normalized_texts.find(id);
  return text != normalized_texts.end() ? std::string_view(text->second) : token(id);
}

std::int32_t Tokenizer::Parts::id_of(std::string_view token) const {
  const auto added = added_ids.find(token);
  return added != added_ids.end() ? added->second : bpe.vocabulary().find(token);
}

namespace {

// One call of encode.
class Encoding {
 public:
  // starts (if not null) gets the byte of the text where each token begins.
  Encoding(const Tokenizer::Parts& parts, Tokenizer::Parts::Scratch& scratch, const LiteralRanges& literal,
           TokenIds& ids, std::vector<std::uint32_t>* starts)
      : parts_(parts), scratch_(scratch), literal_(literal), ids_(ids), starts_(starts) {}

  void run(std::string_view text) {
    // Where a token may not take a user's text, normalised text must be traced back to it.
    const bool tracked = starts_ != nullptr || !literal_.empty();
    const AlignedText whole(text, 0, tracked);
    std::vector<AddedTokens::Piece> pieces;
    parts_.added_raw->split(whole, literal_, pieces);
    for (const AddedTokens::Piece& piece : pieces) {
      if (piece.id >= 0) {
        push(piece.id, piece.token_begin);
      } else {
        AlignedText between(whole, piece.span);
        run_between(between);
      }
    }
  }

 private:
  void push(std::int32_t id, std::uint32_t start) {
    ids_.push_back(id);
    if (starts_ != nullptr) starts_->push_back(start);
  }

  void run_between(AlignedText& text) {
    const bool at_start = text.origin(0) == 0;
    parts_.normalizer.run(text, scratch_.pre_tokenizer.pattern);
    if (parts_.added_normalized->empty()) return run_words(text, at_start);
    std::vector<AddedTokens::Piece> pieces;
    parts_.added_normalized->split(text, literal_, pieces);
    for (const AddedTokens::Piece& piece : pieces) {
      if (piece.id >= 0) {
        push(piece.id, text.origin(piece.token_begin));
      } else {
        AlignedText between(text, piece.span);
        run_words(between, at_start && piece.span.begin == 0);
      }
    }
  }

  void run_words(AlignedText& text, bool at_start) {
    parts_.pre_tokenizer.run(text, at_start, scratch_.pre_tokenizer, scratch_.words);
    const std::string_view bytes = text.bytes();
    for (const Span word : scratch_.words) {
      std::size_t at = word.begin;
      for (const WordToken token : parts_.bpe.encode(bytes.substr(at, word.end - word.begin), scratch_.bpe)) {
        ids_.push_back(token.id);
        if (starts_ != nullptr) {
          starts_->push_back(text.origin(std::min<std::size_t>(at, bytes.size())));
          at += token.bytes;
        }
      }
    }
  }

  const Tokenizer::Parts& parts_;
  Tokenizer::Parts::Scratch& scratch_;
  const LiteralRanges& literal_;
  TokenIds& ids_;
  std::vector<std::uint32_t>* starts_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

TokenIds Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = replace_invalid_utf8(text);
  check_length(text.size());
  LiteralRanges literal;
  if (!options.parse_special_tokens) literal.add_all(text.size());
  TokenIds ids;
  if (options.add_special_tokens) ids = parts_->prefix;
  auto scratch = parts_->borrow();
  Encoding(*parts_, *scratch, literal, ids, nullptr).run(text);
  parts_->give_back(std::move(scratch));
  if (options.add_special_tokens) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return ids;
}

TokenIds Tokenizer::encode(std::span<const TextPiece> pieces, std::vector<bool>* trained) const {
  std::string text;
  LiteralRanges literal;
  std::vector<std::uint32_t> ends;  // of the pieces, in text
  for (const TextPiece& piece : pieces) {
    const std::size_t begin = text.size();
    text += is_valid_utf8(piece.text) ? piece.text : replace_invalid_utf8(piece.text);
    check_length(text.size());
    ends.push_back(static_cast<std::uint32_t>(text.size()));
    if (piece.literal) literal.add({static_cast<std::uint32_t>(begin), ends.back()});
  }
  TokenIds ids;
  std::vector<std::uint32_t> starts;
  auto scratch = parts_->borrow();
  Encoding(*parts_, *scratch, literal, ids, trained != nullptr ? &starts : nullptr).run(text);
  parts_->give_back(std::move(scratch));
  if (trained == nullptr) return ids;
  trained->clear();
  for (const std::uint32_t start : starts) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), start);
    trained->push_back(end != ends.end() && pieces[static_cast<std::size_t>(end - ends.begin())].trained);
  }
  return ids;
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(parts_->special.size());
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->special[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::bos_token_id() const {
  return parts_->bos;
}
std::int32_t Tokenizer::eos_token_id() const {
  return parts_->eos;
}
std::int32_t Tokenizer::id_of(std::string_view token) const {
  return parts_->id_of(token);
}
std::string Tokenizer::token(std::int32_t id) const {
  return std::string(parts_->token(id));
}
const std::string& Tokenizer::to_json() const {
  return parts_->json;
}
const std::string& Tokenizer::config_json() const {
  return parts_->config;
}

}  // namespace slideway
