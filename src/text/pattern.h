// Pattern: a regular expression of a tokenizer.json, found all over a text.
//
// The files are written for Oniguruma. What of its language means the same to PCRE2, or can be said otherwise, is
// accepted: \s is spelled out (PCRE2 counts U+180E as white space), ^ and $ match at lines. What would match other
// text (\w, \b, \h, nested classes, …) is refused by name. Character classes are those of PCRE2's Unicode version:
// 14 in PCRE2 10.42, so characters that Unicode 15 and 16 added are no letters yet.
//
// Threads  const calls from any number of threads, each with its own scratch
// Errors   unsupported (which part of which pattern), corrupt (no regular expression at all)
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"

namespace slideway {

// What one thread needs to match any pattern.
class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();

 private:
  friend class Pattern;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class Pattern {
 public:
  // where: what to call the pattern in a message.
  static Pattern regex(std::string_view oniguruma, const std::string& where);
  static Pattern literal(std::string_view text);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Appends every match, left to right. The text is valid UTF-8.
  void find_all(std::string_view text, PatternScratch& scratch, std::vector<Span>& matches) const;

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// The same pattern in PCRE2's spelling.
std::string pcre2_spelling(std::string_view oniguruma, const std::string& where);

}  // namespace slideway
