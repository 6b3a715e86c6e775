#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace slideway {
namespace {

bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (!is_white_space(c) && c != 0x2581) return false;  // U+2581 is a space in SentencePiece's spelling
  }
  return true;
}

std::size_t character_before(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool word_character_at(std::string_view text, std::size_t at) {
  return is_word_character(next_character(text, at));
}

std::size_t white_space_before(std::string_view text, std::size_t at) {
  while (at > 0) {
    std::size_t before = character_before(text, at);
    std::size_t read = before;
    if (!is_white_space(next_character(text, read))) break;
    at = before;
  }
  return at;
}

std::size_t white_space_after(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t read = at;
    if (!is_white_space(next_character(text, read))) break;
    at = read;
  }
  return at;
}

}  // namespace

void LiteralRanges::add(Span range) {
  if (range.begin == range.end) return;
  if (!ranges_.empty() && ranges_.back().end == range.begin) {
    ranges_.back().end = range.end;
  } else {
    ranges_.push_back(range);
  }
}

bool LiteralRanges::touch(std::uint32_t begin, std::uint32_t end) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                      [](std::uint32_t at, Span range) { return at < range.end; });
  return after != ranges_.end() && after->begin < end;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts)
    : tokens_(std::move(tokens)) {
  std::fill(std::begin(roots_), std::end(roots_), -1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    is_blank_.push_back(is_blank(texts[i]));
    if (!texts[i].empty()) insert(texts[i], static_cast<std::int32_t>(i));
  }
}

std::int32_t AddedTokens::child_of(std::int32_t node, char byte) const {
  std::int32_t child = nodes_[static_cast<std::size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<std::size_t>(child)].byte != byte) {
    child = nodes_[static_cast<std::size_t>(child)].sibling;
  }
  return child;
}

void AddedTokens::insert(std::string_view text, std::int32_t token) {
  const auto make = [&](char byte, std::int32_t sibling) {
    nodes_.push_back({-1, sibling, -1, byte});
    return static_cast<std::int32_t>(nodes_.size()) - 1;
  };
  std::int32_t& root = roots_[static_cast<unsigned char>(text[0])];
  if (root < 0) root = make(text[0], -1);
  std::int32_t node = root;
  for (const char byte : text.substr(1)) {
    std::int32_t child = child_of(node, byte);
    if (child < 0) {
      child = make(byte, nodes_[static_cast<std::size_t>(node)].child);
      nodes_[static_cast<std::size_t>(node)].child = child;
    }
    node = child;
  }
  std::int32_t& here = nodes_[static_cast<std::size_t>(node)].token;
  if (here < 0) here = token;  // of two that normalise to the same text the first one counts
}

AddedTokens::Found AddedTokens::find_at(const AlignedText& text, std::size_t begin,
                                        const LiteralRanges& literal) const {
  const std::string_view bytes = text.bytes();
  Found found;
  std::int32_t node = roots_[static_cast<unsigned char>(bytes[begin])];
  for (std::size_t at = begin + 1; node >= 0; ++at) {
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token >= 0 && (is_blank_[static_cast<std::size_t>(token)] || literal.empty() ||
                       !literal.touch(text.origin(begin), text.origin(at)))) {
      found = {token, at};
    }
    if (at == bytes.size()) break;
    node = child_of(node, bytes[at]);
  }
  return found;
}

bool AddedTokens::accepts(const AddedToken& token, std::string_view text, std::size_t begin,
                          std::size_t end) const {
  if (!token.single_word) return true;
  return (begin == 0 || !word_character_at(text, character_before(text, begin))) &&
         (end == text.size() || !word_character_at(text, end));
}

void AddedTokens::split(const AlignedText& text, const LiteralRanges& literal,
                        std::vector<Piece>& pieces) const {
  const std::string_view bytes = text.bytes();
  std::size_t done = 0;
  const auto push = [&](std::size_t begin, std::size_t end, std::int32_t id, std::size_t token_begin) {
    pieces.push_back({{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)},
                      id,
                      static_cast<std::uint32_t>(token_begin)});
  };
  for (std::size_t at = 0; at < bytes.size();) {
    if (roots_[static_cast<unsigned char>(bytes[at])] < 0) {
      ++at;
      continue;
    }
    const Found found = find_at(text, at, literal);
    if (found.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.token)];
    if (accepts(token, bytes, at, found.end)) {
      const std::size_t begin = token.lstrip ? std::max(done, white_space_before(bytes, at)) : at;
      const std::size_t end = token.rstrip ? white_space_after(bytes, found.end) : found.end;
      if (done < begin) push(done, begin, -1, 0);
      push(begin, end, token.id, at);
      done = end;
      at = std::max(found.end, end);
    } else {
      at = found.end;
    }
  }
  if (done < bytes.size()) push(done, bytes.size(), -1, 0);
}

}  // namespace slideway
