#include "text/pretokenize.h"

#include "core/error.h"

namespace slideway {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

struct Part {
  Span span;
  bool is_match;
};

// The whole of a word, in matches and what lies between them; nothing empty.
template <class Take>
void for_each_part(Span word, const std::vector<Span>& matches, bool invert, const Take& take) {
  std::uint32_t at = word.begin;
  for (const Span found : matches) {
    const Span match{word.begin + found.begin, word.begin + found.end};
    if (at < match.begin) take(Part{{at, match.begin}, invert});
    if (match.begin < match.end) take(Part{match, !invert});
    at = match.end;
  }
  if (at < word.end) take(Part{{at, word.end}, invert});
}

void cut_merged_with_next(Span word, const std::vector<Span>& matches, bool invert, std::vector<Span>& out) {
  // A match opens a piece that the part after it completes; of matches in a row only the last one does.
  bool open = false;
  for_each_part(word, matches, invert, [&](Part part) {
    if (!part.is_match && open) {
      out.back().end = part.span.end;
    } else {
      out.push_back(part.span);
    }
    open = part.is_match;
  });
}

void cut_merged_with_previous(Span word, const std::vector<Span>& matches, bool invert,
                              std::vector<Span>& out) {
  bool open = false;  // the last part was no match
  for_each_part(word, matches, invert, [&](Part part) {
    if (part.is_match && open) {
      out.back().end = part.span.end;
    } else {
      out.push_back(part.span);
    }
    open = !part.is_match;
  });
}

void cut_contiguous(Span word, const std::vector<Span>& matches, bool invert, std::vector<Span>& out) {
  bool first = true, previous = false;
  for_each_part(word, matches, invert, [&](Part part) {
    if (!first && part.is_match == previous) {
      out.back().end = part.span.end;
    } else {
      out.push_back(part.span);
    }
    first = false;
    previous = part.is_match;
  });
}

void cut(Span word, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
         std::vector<Span>& out) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return for_each_part(word, matches, invert, [&](Part part) { out.push_back(part.span); });
    case SplitBehavior::removed:
      return for_each_part(word, matches, invert, [&](Part part) {
        if (!part.is_match) out.push_back(part.span);
      });
    case SplitBehavior::merged_with_previous:
      return cut_merged_with_previous(word, matches, invert, out);
    case SplitBehavior::merged_with_next:
      return cut_merged_with_next(word, matches, invert, out);
    case SplitBehavior::contiguous:
      return cut_contiguous(word, matches, invert, out);
  }
}

}  // namespace

PreTokenizer::Step PreTokenizer::step_of(const PreTokenizerStep& is) {
  Step step;
  switch (is.kind) {
    case PreTokenizerStep::split:
      step.pattern = is.pattern.is_regex ? Pattern::regex(is.pattern.text, "pre_tokenizer Split")
                                         : Pattern::literal(is.pattern.text);
      step.behavior = is.behavior;
      step.invert = is.invert;
      break;
    case PreTokenizerStep::digits:
      step.pattern = Pattern::regex("\\p{N}", "pre_tokenizer Digits");
      step.behavior = is.individual_digits ? SplitBehavior::isolated : SplitBehavior::contiguous;
      break;
    case PreTokenizerStep::punctuation:
      step.pattern = Pattern::regex("[\\p{P}$+<=>^`|~]", "pre_tokenizer Punctuation");
      step.behavior = is.behavior;
      break;
    case PreTokenizerStep::metaspace:
      step.replacement = is.replacement;
      if (is.prepend_scheme != PrependScheme::never) step.prefix = is.replacement;
      step.prefix_at_start_only = is.prepend_scheme == PrependScheme::first;
      if (is.split_words) step.pattern = Pattern::literal(is.replacement);
      step.behavior = SplitBehavior::merged_with_next;
      break;
    case PreTokenizerStep::byte_level:
      if (is.add_prefix_space) step.prefix.assign(1, ' ');
      if (is.use_regex) step.pattern = Pattern::regex(kGpt2Pattern, "pre_tokenizer ByteLevel");
      break;
  }
  return step;
}

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps) {
  for (const PreTokenizerStep& step : steps) {
    if (byte_level_) {
      fail(ErrorKind::unsupported, "pre_tokenizer: a step after ByteLevel (step ", steps_.size() + 1,
           "); ByteLevel must be the last");
    }
    byte_level_ = step.kind == PreTokenizerStep::byte_level;
    steps_.push_back(step_of(step));
  }
}

namespace {

// Words with spaces replaced and the prefix put before those that lack it.
void rewrite_words(AlignedText& text, std::string_view replacement, std::string_view prefix,
                   bool prefix_first_only, bool at_start, std::vector<Span>& words) {
  const std::string_view in = text.bytes();
  AlignedText::Rewrite out(text);
  for (Span& word : words) {
    const std::uint32_t begin = out.bytes();
    const bool wanted = !prefix.empty() && (!prefix_first_only || (at_start && word.begin == 0));
    const std::string_view bytes = in.substr(word.begin, word.end - word.begin);
    const bool has_prefix = bytes.starts_with(prefix) || (!replacement.empty() && bytes.starts_with(' '));
    if (wanted && !has_prefix) out.write(prefix, word.begin);
    std::size_t kept = word.begin;
    for (std::size_t at = word.begin; !replacement.empty() && at < word.end; ++at) {
      if (in[at] != ' ') continue;
      out.keep(kept, at);
      out.write(replacement, at);
      kept = at + 1;
    }
    out.keep(kept, word.end);
    word = {begin, out.bytes()};
  }
  out.finish();
}

}  // namespace

void PreTokenizer::run(AlignedText& text, bool at_start, Scratch& scratch, std::vector<Span>& words) const {
  words.clear();
  if (text.bytes().empty()) return;
  words.push_back({0, static_cast<std::uint32_t>(text.bytes().size())});
  for (const Step& step : steps_) {
    if (!step.replacement.empty() || !step.prefix.empty()) {
      rewrite_words(text, step.replacement, step.prefix, step.prefix_at_start_only, at_start, words);
    }
    if (!step.pattern) continue;
    scratch.cut.clear();
    for (const Span word : words) {
      scratch.matches.clear();
      step.pattern->find_all(text.bytes().substr(word.begin, word.end - word.begin), scratch.pattern,
                             scratch.matches);
      cut(word, scratch.matches, step.behavior, step.invert, scratch.cut);
    }
    words.swap(scratch.cut);
  }
}

}  // namespace slideway
