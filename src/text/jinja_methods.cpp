// Methods of Python's str, list and dict.
#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"

namespace slideway {

using Kind = JinjaValue::Kind;
using Shape = JinjaList::Shape;
using Run = JinjaInterpreter;

namespace {

const TracedText& self_text(const JinjaValue& self) {
  return *self.readable();
}

// An argument that must be a text.
const TracedText& need_text(Run& run, const JinjaValue& value, const char* method) {
  run.need_defined(value);
  const TracedText* text = value.readable();
  if (!text) run.error(method, "() needs a text, found a ", value.type_name());
  return *text;
}

template <CharCase first, CharCase rest>
JinjaValue recased(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters none(run, call, "a change of case", {});
  return run.make(with_case(self_text(self), first, rest));
}

bool is_letter(std::int32_t c) {
  const auto category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

JinjaValue title(Run& run, const JinjaValue& self, const JinjaCall&) {
  const TracedText& text = self_text(self);
  TracedText out;
  bool inside = false;  // a word
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + char_bytes(text.bytes(), at);
    const CharCase to = inside ? CharCase::lower : CharCase::title;
    out.append(with_case(text.slice(at, end), to, to));
    inside = is_letter(code_point(text.bytes(), at));
    at = end;
  }
  return run.make(std::move(out));
}

JinjaValue swapcase(Run& run, const JinjaValue& self, const JinjaCall&) {
  const TracedText& text = self_text(self);
  TracedText out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + char_bytes(text.bytes(), at);
    const bool upper = utf8proc_category(code_point(text.bytes(), at)) == UTF8PROC_CATEGORY_LU;
    const CharCase to = upper ? CharCase::lower : CharCase::upper;
    out.append(with_case(text.slice(at, end), to, to));
    at = end;
  }
  return run.make(std::move(out));
}

template <bool left, bool right>
JinjaValue strip(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "strip", {"chars"});
  const TracedText& text = self_text(self);
  const bool spaces = !given.has(0) || given.value(0).is(Kind::none);
  if (!spaces && need_text(run, given.value(0), "strip").empty()) return run.make(text);
  const auto [begin, end] =
      stripped(text.bytes(), left, right, spaces ? "" : need_text(run, given.value(0), "strip").bytes());
  return run.make(text.slice(begin, end));
}

// --- splitting and joining ----------------------------------------------------------------------------------------

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

Ranges split_at_spaces(const std::string& text, std::int64_t most) {
  Ranges parts;
  std::size_t at = 0;
  while (true) {
    at += stripped(std::string_view(text).substr(at), true, false).first;
    if (at == text.size()) return parts;
    if (most >= 0 && std::int64_t(parts.size()) == most) {
      parts.emplace_back(at, text.size());
      return parts;
    }
    std::size_t end = at;
    while (end < text.size() && !is_space(code_point(text, end))) end += char_bytes(text, end);
    parts.emplace_back(at, end);
    at = end;
  }
}

Ranges rsplit_at_spaces(const std::string& text, std::int64_t most) {
  Ranges parts;
  std::size_t end = text.size();
  while (true) {
    end = stripped(std::string_view(text).substr(0, end), false, true).second;
    if (end == 0) break;
    if (most >= 0 && std::int64_t(parts.size()) == most) {
      parts.emplace_back(0, end);
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      std::size_t last = begin - 1;
      while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
      if (is_space(code_point(text, last))) break;
      begin = last;
    }
    parts.emplace_back(begin, end);
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Ranges split_at(const std::string& text, const std::string& mark, std::int64_t most) {
  Ranges parts;
  std::size_t at = 0;
  while (most < 0 || std::int64_t(parts.size()) < most) {
    const std::size_t found = text.find(mark, at);
    if (found == std::string::npos) break;
    parts.emplace_back(at, found);
    at = found + mark.size();
  }
  parts.emplace_back(at, text.size());
  return parts;
}

Ranges rsplit_at(const std::string& text, const std::string& mark, std::int64_t most) {
  Ranges parts;
  std::size_t end = text.size();
  while (end >= mark.size() && (most < 0 || std::int64_t(parts.size()) < most)) {
    const std::size_t found = text.rfind(mark, end - mark.size());
    if (found == std::string::npos) break;
    parts.emplace_back(found + mark.size(), end);
    end = found;
  }
  parts.emplace_back(0, end);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

JinjaValue sliced(Run& run, const TracedText& text, const Ranges& parts, Shape shape = Shape::list) {
  run.step(text.size() / 64);
  std::vector<JinjaValue> items;
  for (const auto& [begin, end] : parts) items.push_back(JinjaValue::of(text.slice(begin, end)));
  return run.make(std::move(items), shape);
}

template <bool from_right>
JinjaValue split(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "split", {"sep", "maxsplit"});
  const TracedText& text = self_text(self);
  const std::int64_t most = given.integer(1, -1);
  if (!given.has(0) || given.value(0).is(Kind::none))
    return sliced(run, text, (from_right ? rsplit_at_spaces : split_at_spaces)(text.bytes(), most));
  const TracedText& mark = need_text(run, given.value(0), "split");
  if (mark.empty()) run.error("split() needs a separator that is not empty");
  return sliced(run, text, (from_right ? rsplit_at : split_at)(text.bytes(), mark.bytes(), most));
}

JinjaValue splitlines(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "splitlines", {"keepends"});
  const TracedText& text = self_text(self);
  const std::string& bytes = text.bytes();
  Ranges lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::int32_t c = code_point(bytes, at);
    std::size_t end = at + char_bytes(bytes, at);
    const bool breaks =
        (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (breaks) {
      if (c == '\r' && end < bytes.size() && bytes[end] == '\n') ++end;
      lines.emplace_back(begin, given.truth(0, false) ? end : at);
      begin = end;
    }
    at = end;
  }
  if (begin < bytes.size()) lines.emplace_back(begin, bytes.size());
  return sliced(run, text, lines);
}

template <bool from_right>
JinjaValue partition(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "partition", {"sep"}, 1);
  const TracedText& text = self_text(self);
  const TracedText& mark = need_text(run, given.value(0), "partition");
  if (mark.empty()) run.error("partition() needs a separator that is not empty");
  const std::size_t at = from_right ? text.bytes().rfind(mark.bytes()) : text.bytes().find(mark.bytes());
  const std::size_t size = text.size();
  if (at == std::string::npos)
    return sliced(run, text,
                  from_right ? Ranges{{0, 0}, {0, 0}, {0, size}} : Ranges{{0, size}, {0, 0}, {0, 0}},
                  Shape::tuple);
  return sliced(run, text, {{0, at}, {at, at + mark.size()}, {at + mark.size(), size}}, Shape::tuple);
}

JinjaValue join(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "join", {"iterable"}, 1);
  TracedText out;
  bool first = true;
  for (const JinjaValue& item : run.items_of(given.value(0))) {
    if (!first) out.append(self_text(self));
    first = false;
    out.append(need_text(run, item, "join"));
    run.check_bytes(out.size());
  }
  return run.make(std::move(out));
}

JinjaValue replace(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "replace", {"old", "new", "count"}, 2);
  const TracedText& from = need_text(run, given.value(0), "replace");
  const TracedText& to = need_text(run, given.value(1), "replace");
  std::int64_t left = given.integer(2, -1);
  const TracedText& text = self_text(self);
  TracedText out;
  std::size_t at = 0;
  while (left != 0) {
    const std::size_t found = from.empty() ? at : text.bytes().find(from.bytes(), at);
    if (found == std::string::npos || found > text.size()) break;
    out.append(text, at, found);
    out.append(to);
    run.check_bytes(out.size());
    --left;
    at = found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) return run.make(std::move(out));  // an empty text stands between all characters
    const std::size_t next = at + char_bytes(text.bytes(), at);
    out.append(text, at, next);
    at = next;
  }
  out.append(text, at, text.size());
  return run.make(std::move(out));
}

// --- looking ------------------------------------------------------------------------------------------------------

// The bytes between two positions in characters, as Python's optional start and end arguments mean them.
std::pair<std::size_t, std::size_t> between(Run& run, const std::string& text, const JinjaParameters& given) {
  if (!given.has(1) && !given.has(2)) return {0, text.size()};
  const std::int64_t size = std::int64_t(count_chars(text));
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    if (!given.has(i) || given.value(i).is(Kind::none)) return otherwise;
    const std::int64_t at = given.integer(i, 0);
    return std::clamp<std::int64_t>(at < 0 ? std::max<std::int64_t>(at, -size) + size : at, 0, size);
  };
  run.step(text.size() / 64);
  const std::int64_t begin = place(1, 0), end = std::max(begin, place(2, size));
  return {byte_of_char(text, std::size_t(begin)), byte_of_char(text, std::size_t(end))};
}

template <bool at_start>
JinjaValue begins_or_ends(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const char* name = at_start ? "startswith" : "endswith";
  const JinjaParameters given(run, call, name, {"prefix", "start", "end"}, 1);
  const std::string& bytes = self_text(self).bytes();
  const auto [begin, end] = between(run, bytes, given);
  const std::string_view text = std::string_view(bytes).substr(begin, end - begin);
  const auto fits = [&](const JinjaValue& part) {
    const std::string& bytes = need_text(run, part, name).bytes();
    return at_start ? text.starts_with(bytes) : text.ends_with(bytes);
  };
  const JinjaValue& part = given.value(0);
  if (!part.is(Kind::list) || part.list().shape != Shape::tuple) return JinjaValue::of(fits(part));
  return JinjaValue::of(std::any_of(part.list().items.begin(), part.list().items.end(), fits));
}

template <bool from_right, bool must>
JinjaValue find(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "find", {"sub", "start", "end"}, 1);
  const std::string& bytes = self_text(self).bytes();
  const auto [begin, end] = between(run, bytes, given);
  const std::string_view text = std::string_view(bytes).substr(begin, end - begin);
  const std::string& part = need_text(run, given.value(0), "find").bytes();
  const std::size_t at = from_right ? text.rfind(part) : text.find(part);
  run.step(text.size() / 64);
  if (at == std::string::npos && must)
    run.error("index(): the text does not contain '", part.substr(0, 40), "'");
  if (at == std::string::npos) return JinjaValue::of(std::int64_t(-1));
  return JinjaValue::of(std::int64_t(count_chars(std::string_view(bytes).substr(0, begin + at))));
}

JinjaValue count(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "count", {"sub", "start", "end"}, 1);
  const std::string& bytes = self_text(self).bytes();
  const auto [begin, end] = between(run, bytes, given);
  const std::string_view text = std::string_view(bytes).substr(begin, end - begin);
  const std::string& part = need_text(run, given.value(0), "count").bytes();
  run.step(text.size() / 64);
  if (part.empty()) return JinjaValue::of(std::int64_t(count_chars(text) + 1));
  std::int64_t number = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++number;
  return JinjaValue::of(number);
}

// True for texts that are not empty and all of whose characters pass.
template <bool (*passes)(std::int32_t)>
JinjaValue all(Run&, const JinjaValue& self, const JinjaCall&) {
  const std::string& text = self_text(self).bytes();
  for (std::size_t at = 0; at < text.size(); at += char_bytes(text, at))
    if (!passes(code_point(text, at))) return JinjaValue::of(false);
  return JinjaValue::of(!text.empty());
}

bool is_decimal(std::int32_t c) {
  return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_numeric(std::int32_t c) {
  const auto category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
bool is_digit(std::int32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}
bool is_alnum(std::int32_t c) {
  return is_letter(c) || is_numeric(c);
}

template <utf8proc_category_t wanted, utf8proc_category_t other>
JinjaValue all_cased(Run&, const JinjaValue& self, const JinjaCall&) {
  const std::string& text = self_text(self).bytes();
  bool any = false;
  for (std::size_t at = 0; at < text.size(); at += char_bytes(text, at)) {
    const auto category = utf8proc_category(code_point(text, at));
    if (category == other || category == UTF8PROC_CATEGORY_LT) return JinjaValue::of(false);
    any |= category == wanted;
  }
  return JinjaValue::of(any);
}

JinjaValue is_ascii(Run&, const JinjaValue& self, const JinjaCall&) {
  const std::string& text = self_text(self).bytes();
  return JinjaValue::of(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }));
}

// --- padding and trimming -------------------------------------------------------------------------------------------

enum class Side { left, right, both };

template <Side text_side>
JinjaValue pad(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "padding", {"width", "fillchar"}, 1);
  const TracedText& text = self_text(self);
  const TracedText fill = given.text(1, " ");
  if (count_chars(fill.bytes()) != 1) run.error("a text is padded with one character");
  const std::int64_t space = given.integer(0, 0) - std::int64_t(count_chars(text.bytes()));
  if (space <= 0) return run.make(text);
  run.check_bytes(std::size_t(space) + text.size());
  run.step(std::size_t(space));
  // Python's center puts the odd one to the left where the width is odd too
  const std::int64_t left = text_side == Side::left    ? 0
                            : text_side == Side::right ? space
                                                       : space / 2 + (space & given.integer(0, 0) & 1);
  TracedText out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (std::int64_t i = left; i < space; ++i) out.append(fill);
  return run.make(std::move(out));
}

JinjaValue zfill(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "zfill", {"width"}, 1);
  const TracedText& text = self_text(self);
  const std::int64_t space = given.integer(0, 0) - std::int64_t(count_chars(text.bytes()));
  if (space <= 0) return run.make(text);
  run.check_bytes(std::size_t(space) + text.size());
  const std::size_t sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  TracedText out = text.slice(0, sign);
  out.append(std::string(std::size_t(space), '0'));
  out.append(text, sign, text.size());
  return run.make(std::move(out));
}

template <bool at_start>
JinjaValue remove_part(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, at_start ? "removeprefix" : "removesuffix", {"part"}, 1);
  const TracedText& text = self_text(self);
  const std::string& part = need_text(run, given.value(0), "removeprefix").bytes();
  if (at_start && text.bytes().starts_with(part)) return run.make(text.slice(part.size(), text.size()));
  if (!at_start && text.bytes().ends_with(part)) return run.make(text.slice(0, text.size() - part.size()));
  return run.make(text);
}

JinjaValue brace_format(Run& run, const JinjaValue& self, const JinjaCall& call) {
  return run.make(jinja_brace_format(run, self_text(self), call));
}

JinjaValue same(Run&, const JinjaValue& self, const JinjaCall&) {
  return self;
}

// --- mappings and lists ---------------------------------------------------------------------------------------------

JinjaValue dict_get(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "get", {"key", "default"}, 1);
  const JinjaValue& key = given.value(0);
  if (key.is(Kind::list) || key.is(Kind::dict)) run.error("get(): a ", key.type_name(), " is no key");
  const JinjaValue* found = self.dict().find(key);
  return found ? *found : given.value(1, JinjaValue());
}

template <bool keys, bool values>
JinjaValue dict_view(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters none(run, call, "a view of a mapping", {});
  std::vector<JinjaValue> items;
  for (const auto& [key, value] : self.dict().entries)
    items.push_back(keys && values ? run.make({key, value}, Shape::tuple) : keys ? key : value);
  return run.make(std::move(items), Shape::view);
}

JinjaValue list_index(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "index", {"value"}, 1);
  const auto& items = self.list().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], given.value(0))) return JinjaValue::of(std::int64_t(i));
  run.error("index(): the list does not contain the value");
}

JinjaValue list_count(Run& run, const JinjaValue& self, const JinjaCall& call) {
  const JinjaParameters given(run, call, "count", {"value"}, 1);
  const auto& items = self.list().items;
  return JinjaValue::of(std::int64_t(std::count_if(
      items.begin(), items.end(), [&](const JinjaValue& item) { return equal(item, given.value(0)); })));
}

using Table = std::unordered_map<std::string, JinjaFilter>;

const Table& text_methods() {
  static const Table kTable = {
      {"upper", recased<CharCase::upper, CharCase::upper>},
      {"lower", recased<CharCase::lower, CharCase::lower>},
      {"casefold", recased<CharCase::lower, CharCase::lower>},
      {"capitalize", recased<CharCase::title, CharCase::lower>},
      {"title", title},
      {"swapcase", swapcase},
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", splitlines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"join", join},
      {"replace", replace},
      {"startswith", begins_or_ends<true>},
      {"endswith", begins_or_ends<false>},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count},
      {"isalpha", all<is_letter>},
      {"isdigit", all<is_digit>},
      {"isdecimal", all<is_decimal>},
      {"isnumeric", all<is_numeric>},
      {"isalnum", all<is_alnum>},
      {"isspace", all<is_space>},
      {"isupper", all_cased<UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL>},
      {"islower", all_cased<UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU>},
      {"isascii", is_ascii},
      {"ljust", pad<Side::left>},
      {"rjust", pad<Side::right>},
      {"center", pad<Side::both>},
      {"zfill", zfill},
      {"removeprefix", remove_part<true>},
      {"removesuffix", remove_part<false>},
      {"format", brace_format},
  };
  return kTable;
}

const Table& dict_methods() {
  static const Table kTable = {{"get", dict_get},
                               {"keys", dict_view<true, false>},
                               {"values", dict_view<false, true>},
                               {"items", dict_view<true, true>},
                               {"copy", same}};
  return kTable;
}

const Table& list_methods() {
  static const Table kTable = {{"index", list_index}, {"count", list_count}, {"copy", same}};
  return kTable;
}

}  // namespace

JinjaFilter find_jinja_method(const JinjaValue& value, const std::string& name) {
  const Table* table = nullptr;
  if (value.is(Kind::dict))
    table = &dict_methods();
  else if (value.readable())
    table = &text_methods();
  else if (value.is(Kind::list) && value.list().shape <= Shape::range)
    table = &list_methods();
  if (!table) return nullptr;
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace slideway
