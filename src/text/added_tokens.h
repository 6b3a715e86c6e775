// AddedTokens: tokens that are found in the text itself, before it is cut into words: control tokens and the like.
//
// They are found left to right, the longest at each place. Text in a literal range came from a user: a token never
// takes a byte of it, unless the token is only white space (some vocabularies add runs of spaces), which controls
// nothing.
//
// Threads  const calls from any number of threads
// Source   tokenizers' added vocabulary: lstrip and rstrip take the white space beside a token with it, single_word
//          asks for no word character beside it
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"
#include "text/tokenizer_spec.h"

namespace slideway {

// Ranges of bytes, ascending, disjoint.
class LiteralRanges {
 public:
  void add(Span range);  // not before an earlier one
  void add_all(std::size_t bytes) { add({0, static_cast<std::uint32_t>(bytes)}); }
  bool touch(std::uint32_t begin, std::uint32_t end) const;
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<Span> ranges_;
};

class AddedTokens {
 public:
  struct Piece {
    Span span;
    std::int32_t id = -1;           // −1: text
    std::uint32_t token_begin = 0;  // of a token, without white space taken with it
  };

  // texts: what to look for, one for each token (its content, perhaps normalised).
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts);

  bool empty() const { return tokens_.empty(); }
  // The whole text in pieces, none empty.
  void split(const AlignedText& text, const LiteralRanges& literal, std::vector<Piece>& pieces) const;

 private:
  struct Node {
    std::int32_t child = -1, sibling = -1;  // nodes
    std::int32_t token = -1;                // of tokens_
    char byte = 0;
  };
  struct Found {
    std::int32_t token = -1;
    std::size_t end = 0;
  };
  std::int32_t child_of(std::int32_t node, char byte) const;
  void insert(std::string_view text, std::int32_t token);
  Found find_at(const AlignedText& text, std::size_t begin, const LiteralRanges& literal) const;
  bool accepts(const AddedToken& token, std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  std::vector<bool> is_blank_;
  std::vector<Node> nodes_;
  std::int32_t roots_[256];
};

}  // namespace slideway
