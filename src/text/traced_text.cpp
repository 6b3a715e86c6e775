#include "text/traced_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace slideway {

TracedText::TracedText(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), origin});
}

Origin TracedText::origin_at(std::size_t byte) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), byte,
                                    [](std::size_t at, const Run& r) { return at < r.end; });
  return run == runs_.end() ? Origin{} : run->origin;
}

void TracedText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back({bytes_.size(), origin});
}

void TracedText::append(const TracedText& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](std::size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const std::size_t to = std::min(end, run->end);
    append(std::string_view(other.bytes_).substr(begin, to - begin), run->origin);
    begin = to;
  }
}

void TracedText::mark_trained() {
  std::vector<Run> marked;
  for (Run run : runs_) {
    run.origin.trained = true;
    if (!marked.empty() && marked.back().origin == run.origin)
      marked.back().end = run.end;
    else
      marked.push_back(run);
  }
  runs_ = std::move(marked);
}

TracedText TracedText::slice(std::size_t begin, std::size_t end) const {
  TracedText part;
  part.append(*this, begin, end);
  return part;
}

std::size_t char_bytes(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(bytes, text.size() - at);
}

std::int32_t code_point(std::string_view text, std::size_t at) {
  return std::int32_t(next_character(text, at));
}

std::size_t count_chars(std::string_view text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::size_t byte_of_char(std::string_view text, std::size_t chars) {
  std::size_t at = 0;
  while (chars > 0 && at < text.size()) {
    at += char_bytes(text, at);
    --chars;
  }
  return at;
}

bool is_utf8(std::string_view text, std::size_t* bad) {
  if (is_valid_utf8(text)) return true;
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Start start = utf8_start(text.substr(at));
    if (start.kind != Utf8Start::whole) break;
    at += start.bytes;
  }
  if (bad) *bad = at;
  return false;
}

std::string utf8_of(std::int32_t code_point) {
  std::string out;
  append_utf8(out, char32_t(code_point));
  return out;
}

bool is_space(std::int32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::pair<std::size_t, std::size_t> stripped(std::string_view text, bool left, bool right,
                                             std::string_view chars) {
  const auto goes = [&](std::size_t at) {
    if (chars.empty()) return is_space(code_point(text, at));
    return chars.find(text.substr(at, char_bytes(text, at))) != std::string_view::npos;
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && goes(begin)) begin += char_bytes(text, begin);
  while (right && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && (text[last] & 0xC0) == 0x80) --last;
    if (!goes(last)) break;
    end = last;
  }
  return {begin, end};
}

namespace {

std::string cased(std::int32_t c, CharCase to) {
  if (c == 0xDF && to != CharCase::lower)
    return to == CharCase::upper ? "SS" : "Ss";  // sharp s has no capital
  switch (to) {
    case CharCase::lower:
      return utf8_of(utf8proc_tolower(c));
    case CharCase::upper:
      return utf8_of(utf8proc_toupper(c));
    case CharCase::title:
      return utf8_of(utf8proc_totitle(c));
  }
  return {};
}

}  // namespace

TracedText with_case(const TracedText& text, CharCase first, CharCase rest) {
  TracedText out;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size(); at += char_bytes(bytes, at))
    out.append(cased(code_point(bytes, at), at == 0 ? first : rest), text.origin_at(at));
  return out;
}

}  // namespace slideway
