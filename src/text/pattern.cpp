#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include <algorithm>

#include "core/error.h"
#include "text/unicode.h"

namespace slideway {

struct PatternScratch::Buffers {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 16 << 20, nullptr);
  Buffers() {
    CHECK(match && context && stack, "no memory for a pattern");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Buffers() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

PatternScratch::PatternScratch() : buffers_(std::make_unique<Buffers>()) {}
PatternScratch::~PatternScratch() = default;

struct Pattern::Code {
  pcre2_code* code = nullptr;
  bool fast = false;    // compiled to machine code
  std::string literal;  // not empty: plain text instead
  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::regex(std::string_view oniguruma, const std::string& where) {
  if (!is_valid_utf8(oniguruma)) fail(ErrorKind::corrupt, where, ": the pattern is not UTF-8");
  const std::string spelling = pcre2_spelling(oniguruma, where);
  auto code = std::make_unique<Code>();
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CHECK(context, "no memory for a pattern");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelling.data()), spelling.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                             &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    char text[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    fail(ErrorKind::corrupt, where, ": the pattern ", oniguruma, " (as PCRE2: ", spelling, ") fails at byte ",
         offset, ": ", text);
  }
  code->fast = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Pattern(std::move(code));
}

Pattern Pattern::literal(std::string_view text) {
  auto code = std::make_unique<Code>();
  code->literal = text;
  return Pattern(std::move(code));
}

void Pattern::find_all(std::string_view text, PatternScratch& scratch, std::vector<Span>& matches) const {
  if (code_->code == nullptr) {  // an empty literal is found nowhere
    const std::string& literal = code_->literal;
    for (std::size_t at = literal.empty() ? text.npos : text.find(literal); at != text.npos;
         at = text.find(literal, at + literal.size())) {
      matches.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + literal.size())});
    }
    return;
  }
  const PatternScratch::Buffers& buffers = *scratch.buffers_;
  pcre2_set_match_limit(buffers.context, static_cast<std::uint32_t>(std::min<std::size_t>(
                                             10'000'000 + 64 * text.size(), UINT32_MAX)));
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(buffers.match);
  const auto match = code_->fast ? pcre2_jit_match : pcre2_match;
  for (std::size_t at = 0; at < text.size();) {
    const int found =
        match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, buffers.match, buffers.context);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      fail(ErrorKind::invalid_input, "a pattern of the tokenizer gives up (PCRE2 error ", found, ") at byte ",
           at, " of a text of ", text.size(), " bytes: the text needs too many attempts");
    }
    matches.push_back({static_cast<std::uint32_t>(ends[0]), static_cast<std::uint32_t>(ends[1])});
    at = ends[1];
    if (ends[0] == ends[1] && at < text.size())
      next_character(text, at);  // an empty match: go on one character
  }
}

}  // namespace slideway
