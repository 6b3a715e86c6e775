// Filters of texts and numbers, and the table of all filters. Those of lists and mappings: jinja_list_filters.cpp.
#include "text/jinja_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "text/jinja_format.h"
#include "text/jinja_parser.h"

namespace slideway {

using Kind = JinjaValue::Kind;
using Shape = JinjaList::Shape;
using Run = JinjaInterpreter;

namespace {

// A filter that is Python's str method of that name on whatever the value reads as.
JinjaValue method(Run& run, const char* name, const JinjaValue& input, const JinjaCall& call) {
  const JinjaValue text = run.make(run.text_of(input));
  return find_jinja_method(text, name)(run, text, call);
}

JinjaValue upper(Run& run, const JinjaValue& input, const JinjaCall& call) {
  return method(run, "upper", input, call);
}
JinjaValue lower(Run& run, const JinjaValue& input, const JinjaCall& call) {
  return method(run, "lower", input, call);
}
JinjaValue capitalize(Run& run, const JinjaValue& input, const JinjaCall& call) {
  return method(run, "capitalize", input, call);
}
JinjaValue trim(Run& run, const JinjaValue& input, const JinjaCall& call) {
  return method(run, "strip", input, call);
}

JinjaValue center(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "center", {"width"});
  return method(run, "center", input, {{JinjaValue::of(given.integer(0, 80))}, {}});
}

JinjaValue string(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "string", {});
  return input.is(Kind::string) ? input : run.make(run.text_of(input));
}

JinjaValue replace(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "replace", {"old", "new", "count"}, 2);
  JinjaCall texts{{run.make(run.text_of(given.value(0))), run.make(run.text_of(given.value(1)))}, {}};
  if (given.has(2) && !given.value(2).is(Kind::none)) texts.positional.push_back(given.value(2));
  return method(run, "replace", input, texts);
}

JinjaValue title(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "title", {});
  const TracedText text = run.text_of(input);
  TracedText out;
  bool begins = true;  // a word
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + char_bytes(text.bytes(), at);
    const std::int32_t c = code_point(text.bytes(), at);
    const CharCase to = begins ? CharCase::upper : CharCase::lower;
    out.append(with_case(text.slice(at, end), to, to));
    begins = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    at = end;
  }
  return run.make(std::move(out));
}

JinjaValue escape(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "escape", {});
  const TracedText text = run.text_of(input);
  TracedText out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    static constexpr std::string_view kFrom = "&<>'\"";
    static constexpr const char* kTo[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const auto i = kFrom.find(text.bytes()[at]);
    if (i == std::string_view::npos)
      out.append(text, at, at + 1);
    else
      out.append(kTo[i], text.origin_at(at));
  }
  return run.make(std::move(out));
}

JinjaValue indent(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "indent", {"width", "first", "blank"});
  const bool as_text = given.has(0) && given.value(0).is(Kind::string);
  const std::int64_t width = as_text ? 0 : given.integer(0, 4);
  if (width > 1000) run.error("indent(): the width passes 1000");
  const TracedText by =
      as_text ? given.text(0) : TracedText(std::string(std::size_t(std::max<std::int64_t>(width, 0)), ' '));
  if (!input.readable()) run.error("indent() needs a text, found a ", input.type_name());
  TracedText text = *input.readable();
  text.append("\n", text.empty() ? Origin{} : text.origin_at(text.size() - 1));
  const JinjaValue lines = method(run, "splitlines", run.make(std::move(text)), {});
  TracedText out;
  if (given.truth(1, false)) out.append(by);
  const auto& items = lines.list().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append("\n", input.readable()->origin_at(0));
    if (i > 0 && (given.truth(2, false) || !items[i].text().empty())) out.append(by);
    out.append(items[i].text());
    run.check_bytes(out.size());
  }
  return run.make(std::move(out));
}

JinjaValue truncate(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "truncate", {"length", "killwords", "end", "leeway"});
  if (!input.readable()) run.error("truncate() needs a text, found a ", input.type_name());
  const TracedText& text = *input.readable();
  const TracedText end = given.text(2, "...");
  const std::int64_t keep = given.integer(0, 255) - std::int64_t(count_chars(end.bytes()));
  if (keep < 0) run.error("truncate(): the length is less than that of the end");
  if (std::int64_t(count_chars(text.bytes())) <= given.integer(0, 255) + given.integer(3, 5)) return input;
  TracedText out = text.slice(0, byte_of_char(text.bytes(), std::size_t(keep)));
  if (!given.truth(1, false))
    if (const std::size_t word = out.bytes().rfind(' '); word != std::string::npos) out = out.slice(0, word);
  out.append(end);
  return run.make(std::move(out));
}

JinjaValue wordcount(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "wordcount", {});
  const JinjaValue text = run.make(run.text_of(input));
  std::int64_t words = 0;
  bool inside = false;
  for (const JinjaValue& item : run.items_of(text)) {
    const bool word = item.text().bytes() == "_" || find_jinja_method(item, "isalnum")(run, item, {}).truth();
    words += word && !inside;
    inside = word;
  }
  return JinjaValue::of(words);
}

std::string url_quoted(const std::string& text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    char coded[4];
    std::snprintf(coded, sizeof coded, "%%%02X", unsigned(static_cast<unsigned char>(c)));
    if (plain || (c == '/' && !query))
      out += c;
    else
      out += c == ' ' && query ? "+" : coded;
  }
  return out;
}

// The result is no longer what was written: it keeps no origin, and cannot spell a control token.
JinjaValue urlencode(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "urlencode", {});
  if (!input.is(Kind::dict) && !input.is(Kind::list))
    return run.make(TracedText(url_quoted(run.text_of(input).bytes(), false)));
  std::string out;
  const JinjaValue pairs = input.is(Kind::dict) ? run.filter("items", input, {}) : input;
  for (const JinjaValue& pair : run.items_of(pairs)) {
    const std::vector<JinjaValue> two = run.items_of(pair);
    if (two.size() != 2) run.error("urlencode() needs pairs of a key and a value");
    out += (out.empty() ? "" : "&") + url_quoted(run.text_of(two[0]).bytes(), true) + "=" +
           url_quoted(run.text_of(two[1]).bytes(), true);
    run.check_bytes(out.size());
  }
  return run.make(TracedText(std::move(out)));
}

JinjaValue percent(Run& run, const JinjaValue& input, const JinjaCall& call) {
  if (!call.positional.empty() && !call.named.empty())
    run.error("format() takes values by position or by name, not both");
  const TracedText format = run.text_of(input);
  if (call.named.empty())
    return run.make(jinja_percent(run, format, run.make(call.positional, Shape::tuple)));
  std::vector<std::pair<JinjaValue, JinjaValue>> values;
  for (const auto& [name, value] : call.named) values.emplace_back(run.make(TracedText(name)), value);
  return run.make(jinja_percent(run, format, JinjaValue::of(run.heap().dict(std::move(values)))));
}

JinjaValue tojson(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = given.truth(0, false);
  style.sort_keys = given.truth(3, false);
  if (given.has(1) && given.value(1).is(Kind::string)) {
    style.indent = given.text(1).bytes();
  } else if (given.has(1) && !given.value(1).is(Kind::none)) {
    style.indent = std::string(std::size_t(std::clamp<std::int64_t>(given.integer(1, 0), 0, 100)), ' ');
  }
  if (style.indent && style.indent->size() > 100) run.error("tojson(): the indent passes 100 characters");
  if (style.indent) style.item_separator = ",";
  if (given.has(2) && !given.value(2).is(Kind::none)) {
    const std::vector<JinjaValue> two = run.items_of(given.value(2));
    if (two.size() != 2 || !two[0].is(Kind::string) || !two[1].is(Kind::string))
      run.error("tojson(): 'separators' needs two texts");
    style.item_separator = two[0].text().bytes();
    style.key_separator = two[1].text().bytes();
    run.check_bytes(64 * (style.item_separator.size() + style.key_separator.size()));
  }
  return run.make(json_of(input, style));
}

// --- numbers ----------------------------------------------------------------------------------------------------------

// A number as Python's int() and float() read it: spaces around it, a sign, single underscores between digits.
std::optional<std::string> number_text(const TracedText& text) {
  const auto [begin, end] = stripped(text.bytes(), true, true);
  std::string out;
  for (std::size_t i = begin; i < end; ++i) {
    const char c = text.bytes()[i];
    if (c != '_') {
      out += c;
      continue;
    }
    const auto digit = [&](std::size_t at) {
      return at < end && std::isalnum(static_cast<unsigned char>(text.bytes()[at]));
    };
    if (i == begin || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<std::int64_t> parse_whole(const TracedText& text, std::int64_t base) {
  auto digits = number_text(text);
  if (!digits || digits->empty() || base < 2 || base > 36) return std::nullopt;
  const bool negative = digits->front() == '-';
  if (negative || digits->front() == '+') digits->erase(0, 1);
  const std::string prefix = digits->substr(0, 2);
  if ((base == 16 && (prefix == "0x" || prefix == "0X")) ||
      (base == 8 && (prefix == "0o" || prefix == "0O")) || (base == 2 && (prefix == "0b" || prefix == "0B")))
    digits->erase(0, 2);
  if (digits->empty() || !std::isalnum(static_cast<unsigned char>(digits->front()))) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(((negative ? "-" : "") + *digits).c_str(), &end, int(base));
  if (*end != 0 || errno != 0) return std::nullopt;
  return value;
}

std::optional<double> parse_real(const TracedText& text) {
  const auto digits = number_text(text);
  if (!digits || digits->empty()) return std::nullopt;
  std::string word = *digits;
  if (word[0] == '+' || word[0] == '-') word.erase(0, 1);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  const bool named = word == "inf" || word == "infinity" || word == "nan";
  if (!named && word.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (*end != 0 || end == digits->c_str()) return std::nullopt;
  return value;
}

std::optional<double> real_of(Run& run, const JinjaValue& input) {
  run.need_defined(input);
  if (input.is_number()) return input.real();
  return input.is(Kind::string) ? parse_real(input.text()) : std::nullopt;
}

JinjaValue to_int(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "int", {"default", "base"});
  run.need_defined(input);
  if (input.is_big()) return input;
  if (input.is_whole()) return JinjaValue::of(input.integer());
  if (input.is(Kind::string))
    if (const auto whole = parse_whole(input.text(), given.integer(1, 10))) return JinjaValue::of(*whole);
  const auto real = real_of(run, input);
  if (real && std::abs(*real) < 9.2e18) return JinjaValue::of(std::int64_t(*real));
  return given.value(0, JinjaValue::of(std::int64_t(0)));
}

JinjaValue to_float(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "float", {"default"});
  const auto real = real_of(run, input);
  return real ? JinjaValue::of(*real) : given.value(0, JinjaValue::of(0.0));
}

JinjaValue absolute(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters none(run, call, "abs", {});
  run.need_defined(input);
  if (!input.is_number() || input.is_big()) run.error("abs() needs a number, found a ", input.type_name());
  if (input.is(Kind::real)) return JinjaValue::of(std::abs(input.real()));
  return input.integer() < 0 ? run.binary(JinjaExpr::Op::subtract, JinjaValue::of(std::int64_t(0)), input)
                             : JinjaValue::of(input.integer());
}

double rounded(double value, std::int64_t digits) {
  if (digits < 0) {
    const double unit = std::pow(10.0, double(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char text[512];  // decimal rounding of the exact value, as Python does it
  std::snprintf(text, sizeof text, "%.*f", int(std::min<std::int64_t>(digits, 100)), value);
  return std::strtod(text, nullptr);
}

JinjaValue round(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "round", {"precision", "method"});
  run.need_defined(input);
  if (!input.is_number() || input.is_big()) run.error("round() needs a number, found a ", input.type_name());
  const std::int64_t digits = given.integer(0, 0);
  const std::string how = given.text(1, "common").bytes();
  if (how == "common" && input.is_whole() && digits >= 0) return JinjaValue::of(input.integer());
  if (how == "common" && input.is_whole()) return JinjaValue::of(std::int64_t(rounded(input.real(), digits)));
  if (how == "common") return JinjaValue::of(rounded(input.real(), digits));
  const double unit = std::pow(10.0, double(digits));
  if (how == "ceil") return JinjaValue::of(std::ceil(input.real() * unit) / unit);
  if (how == "floor") return JinjaValue::of(std::floor(input.real() * unit) / unit);
  run.error("round(): the method is common, ceil or floor, not '", how, "'");
}

// --- any value --------------------------------------------------------------------------------------------------------

JinjaValue otherwise(Run& run, const JinjaValue& input, const JinjaCall& call) {
  const JinjaParameters given(run, call, "default", {"default_value", "boolean"});
  const bool use = input.is(Kind::undefined) || (given.truth(1, false) && !input.truth());
  return use ? given.value(0, JinjaValue::of("")) : input;
}

JinjaValue safe(Run& run, const JinjaValue& input, const JinjaCall& call) {
  return string(run, input, call);
}

using Table = std::unordered_map<std::string, JinjaFilter>;

Table all_filters() {
  Table table = {
      {"abs", absolute},        {"capitalize", capitalize},
      {"center", center},       {"d", otherwise},
      {"default", otherwise},   {"e", escape},
      {"escape", escape},       {"float", to_float},
      {"format", percent},      {"indent", indent},
      {"int", to_int},          {"lower", lower},
      {"replace", replace},     {"round", round},
      {"safe", safe},           {"string", string},
      {"title", title},         {"tojson", tojson},
      {"trim", trim},           {"truncate", truncate},
      {"upper", upper},         {"urlencode", urlencode},
      {"wordcount", wordcount},
  };
  for (const auto& [name, body] : jinja_list_filters()) table.emplace(name, body);
  return table;
}

}  // namespace

JinjaFilter find_jinja_filter(const std::string& name) {
  static const Table kTable = all_filters();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

bool is_jinja_filter(const std::string& name) {
  return find_jinja_filter(name) != nullptr;
}

}  // namespace slideway
