#include "text/normalize.h"

#include <utf8proc.h>

#include <array>

#include "core/error.h"
#include "text/unicode.h"

namespace slideway {
namespace {

using Rewrite = AlignedText::Rewrite;

// One of the four forms, in utf8proc's words.
struct Form {
  utf8proc_option_t options;
  bool composed;
};

Form form_of(NormalizerStep::Kind kind) {
  const auto with = [](int options) { return static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE); };
  switch (kind) {
    case NormalizerStep::nfc:
      return {with(UTF8PROC_COMPOSE), true};
    case NormalizerStep::nfd:
      return {with(UTF8PROC_DECOMPOSE), false};
    case NormalizerStep::nfkc:
      return {with(UTF8PROC_COMPOSE | UTF8PROC_COMPAT), true};
    default:
      return {with(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), false};
  }
}

const utf8proc_property_t& property(char32_t c) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
}
bool has_decomposition(char32_t c) {
  return property(c).decomp_seqindex != UINT16_MAX || (c >= 0xAC00 && c <= 0xD7A3);
}

// May c join what stands before it? Only marks and the later parts of a Hangul syllable can.
bool may_join(char32_t c) {
  const auto category = property(c).category;
  return (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) ||
         property(c).combining_class != 0 || (c >= 0x1160 && c <= 0x11FF);
}

// No form of what stands before c can depend on c or on what follows.
bool starts_segment(char32_t c, Form form) {
  if (c < 0x300) return true;
  if (may_join(c)) return false;
  if (property(c).decomp_seqindex == UINT16_MAX) return true;
  std::array<utf8proc_int32_t, 32> parts;
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                             form.options, &boundary);
  return count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()) &&
         !may_join(static_cast<char32_t>(parts[0]));
}

// A character alone keeps its form.
bool is_stable(char32_t c, Form form) {
  if (c < 0x80) return true;
  if (form.composed && (form.options & UTF8PROC_COMPAT) == 0 && c < 0x300) return true;
  if (form.composed && c >= 0xAC00 && c <= 0xD7A3) return true;
  return !has_decomposition(c);
}

std::string normal_form(std::string_view text, Form form) {
  std::vector<utf8proc_int32_t> buffer(text.size() + 8);
  const auto decompose = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                              static_cast<utf8proc_ssize_t>(text.size()), buffer.data(),
                              static_cast<utf8proc_ssize_t>(buffer.size()), form.options);
  };
  utf8proc_ssize_t count = decompose();
  if (count > static_cast<utf8proc_ssize_t>(buffer.size())) {
    buffer.resize(static_cast<std::size_t>(count));
    count = decompose();
  }
  CHECK(count >= 0, utf8proc_errmsg(count));
  count = utf8proc_normalize_utf32(buffer.data(), count, form.options);
  CHECK(count >= 0, utf8proc_errmsg(count));
  std::string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(buffer[static_cast<std::size_t>(i)]));
  }
  return out;
}

// Segment by segment, so that most of a text is passed on as it is and offsets stay close.
void normalize_form(AlignedText& text, Form form) {
  const std::string_view in = text.bytes();
  Rewrite out(text);
  std::size_t kept = 0, at = 0;  // [kept, at) is unchanged so far
  bool changed = false;
  while (at < in.size()) {
    const std::size_t begin = at;
    bool stable = is_stable(next_character(in, at), form);
    while (at < in.size()) {
      std::size_t next = at;
      if (static_cast<unsigned char>(in[at]) < 0x80 || starts_segment(next_character(in, next), form)) break;
      at = next;
      stable = false;
    }
    if (stable) continue;
    const std::string_view segment = in.substr(begin, at - begin);
    const std::string normal = normal_form(segment, form);
    if (normal == segment) continue;
    out.keep(kept, begin);
    out.write(normal, begin);
    kept = at;
    changed = true;
  }
  if (!changed) return;
  out.keep(kept, in.size());
  out.finish();
}

void lowercase(AlignedText& text) {
  const std::string_view in = text.bytes();
  Rewrite out(text);
  std::string lower;
  for (std::size_t at = 0; at < in.size();) {
    const std::size_t begin = at;
    const char32_t c = next_character(in, at);
    lower.clear();
    if (c == 0x130) {  // the one character whose small form is two
      lower = "i\xCC\x87";
    } else {
      append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
    out.write(lower, begin);
  }
  out.finish();
}

void replace(AlignedText& text, const Pattern& pattern, const std::string& content, PatternScratch& scratch) {
  std::vector<Span> matches;
  pattern.find_all(text.bytes(), scratch, matches);
  if (matches.empty()) return;
  Rewrite out(text);
  std::size_t kept = 0;
  for (const Span match : matches) {
    out.keep(kept, match.begin);
    out.write(content, match.begin);
    kept = match.end;
  }
  out.keep(kept, text.bytes().size());
  out.finish();
}

void prepend(AlignedText& text, const std::string& content) {
  if (text.bytes().empty()) return;
  Rewrite out(text);
  out.write(content, 0);
  out.keep(0, text.bytes().size());
  out.finish();
}

void strip(AlignedText& text, bool left, bool right) {
  const std::string_view in = text.bytes();
  std::size_t begin = in.size(), end = 0;  // of what is not white space
  for (std::size_t at = 0; at < in.size();) {
    const std::size_t from = at;
    if (is_white_space(next_character(in, at))) continue;
    begin = std::min(begin, from);
    end = at;
  }
  if (end == 0) begin = left ? in.size() : 0;
  Rewrite out(text);
  out.keep(left ? begin : 0, right ? std::max(end, left ? begin : 0) : in.size());
  out.finish();
}

}  // namespace

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) {
    const PatternSpec& pattern = step.pattern;
    steps_.push_back({step, pattern.is_regex ? Pattern::regex(pattern.text, "normalizer Replace")
                                             : Pattern::literal(pattern.text)});
  }
}

void Normalizer::run(AlignedText& text, PatternScratch& scratch) const {
  for (const Step& step : steps_) {
    switch (step.is.kind) {
      case NormalizerStep::lowercase:
        lowercase(text);
        break;
      case NormalizerStep::replace:
        replace(text, step.pattern, step.is.content, scratch);
        break;
      case NormalizerStep::prepend:
        prepend(text, step.is.content);
        break;
      case NormalizerStep::strip:
        strip(text, step.is.left, step.is.right);
        break;
      default:
        normalize_form(text, form_of(step.is.kind));
    }
  }
}

std::string Normalizer::run(std::string_view text, PatternScratch& scratch) const {
  AlignedText aligned(text, 0, false);
  run(aligned, scratch);
  return std::string(aligned.bytes());
}

}  // namespace slideway
