// Python's "format % values" and str.format, as far as templates use them.
#include "text/jinja_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace slideway {

using Kind = JinjaValue::Kind;

namespace {

constexpr int kMaxWidth = 1000;  // of a padded field

// A field's width, precision and flags: "%-08.3f", "{:>10}".
struct Field {
  char fill = ' ';
  char align = 0;  // <, >, ^ or =; 0: numbers to the right, text to the left
  bool plus = false, space = false, alternate = false;
  int width = 0, precision = -1;
  char type = 's';
};

int take_number(const JinjaInterpreter& run, std::string_view text, std::size_t& at) {
  int number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > kMaxWidth) run.error("a format's width passes ", kMaxWidth);
  }
  return number;
}

TracedText padded(const TracedText& text, const Field& field, bool is_number) {
  const std::size_t chars = count_chars(text.bytes());
  if (chars >= std::size_t(field.width)) return text;
  const std::size_t space = std::size_t(field.width) - chars;
  const char align = field.align ? field.align : is_number ? '>' : '<';
  std::size_t sign = 0;  // "=" fills between the sign and the digits
  if (align == '=' && !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+')) sign = 1;
  const std::size_t before = align == '<' ? 0 : align == '^' ? space / 2 : space;
  TracedText out;
  out.append(text, 0, sign);
  out.append(std::string(before, field.fill));
  out.append(text, sign, text.size());
  out.append(std::string(space - before, field.fill));
  return out;
}

std::int64_t truncated(const JinjaInterpreter& run, double value) {
  if (!(std::abs(value) < 9.2e18)) run.error("a whole number passes 64 bits");
  return std::int64_t(value);
}

std::string number_text(const JinjaInterpreter& run, const JinjaValue& value, const Field& field) {
  if (!value.is_number() || value.is_big())
    run.error("'", field.type, "' formats numbers, not a ", value.type_name());
  char text[512];
  const char* sign = field.plus ? "+" : field.space ? " " : "";
  const auto print = [&](const std::string& pattern, auto... arguments) {
    std::snprintf(text, sizeof text, pattern.c_str(), arguments...);
    return std::string(text);
  };
  const std::string start = std::string("%") + sign + (field.alternate ? "#" : "");
  switch (field.type) {
    case 'd':
    case 'i':
    case 'u':
      return print(std::string("%") + sign + "lld",
                   static_cast<long long>(value.is_whole() ? value.integer() : truncated(run, value.real())));
    case 'x':
    case 'X':
    case 'o': {
      if (!value.is_whole()) run.error("'", field.type, "' formats whole numbers, not a ", value.type_name());
      const bool negative = value.integer() < 0;
      const auto magnitude = negative ? 0 - std::uint64_t(value.integer()) : std::uint64_t(value.integer());
      const std::string digits =
          print(std::string("%") + (field.alternate && field.type != 'o' ? "#" : "") + "ll" + field.type,
                static_cast<unsigned long long>(magnitude));
      return (negative ? "-" : sign) + std::string(field.alternate && field.type == 'o' ? "0o" : "") + digits;
    }
    default: {  // e, f, g and their capitals
      const int precision = field.precision < 0 ? 6 : field.precision;
      if (precision > 100) run.error("a format's precision passes 100");
      return print(start + ".*" + field.type, precision, value.real());
    }
  }
}

TracedText formatted(const JinjaInterpreter& run, const JinjaValue& value, const Field& field) {
  if (field.type != 's' && field.type != 'r')
    return padded(TracedText(number_text(run, value, field)), field, true);
  TracedText text = field.type == 'r' ? repr_of(value) : text_of(value);
  if (field.precision >= 0) text = text.slice(0, byte_of_char(text.bytes(), std::size_t(field.precision)));
  return padded(text, field, false);
}

}  // namespace

TracedText jinja_percent(JinjaInterpreter& run, const TracedText& format, const JinjaValue& values) {
  const bool is_tuple = values.is(Kind::list) && values.list().shape == JinjaList::Shape::tuple;
  const std::string& text = format.bytes();
  std::size_t used = 0;
  bool by_name = false;
  const auto next = [&]() -> JinjaValue {
    if (!is_tuple && used == 0) return ++used, values;
    if (!is_tuple || used >= values.list().items.size()) run.error("'%' has too few values for its format");
    return values.list().items[used++];
  };
  TracedText out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find('%', at), text.size());
    out.append(format, at, mark);
    at = mark;
    if (at == text.size()) break;
    Field field;
    JinjaValue value;
    bool named = false;
    if (++at < text.size() && text[at] == '(') {
      const std::size_t close = text.find(')', at);
      const JinjaValue* found = nullptr;
      if (close != std::string::npos && values.is(Kind::dict))
        found = values.dict().find(std::string_view(text).substr(at + 1, close - at - 1));
      if (!found)
        run.error("'%' finds no value for ", text.substr(at, std::min<std::size_t>(close - at + 1, 40)));
      value = *found;
      named = by_name = true;
      at = close + 1;
    }
    for (; at < text.size() && std::string_view("-0+ #").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') field.align = '<';
      if (text[at] == '0' && field.align == 0) field.align = '=', field.fill = '0';
      field.plus |= text[at] == '+';
      field.space |= text[at] == ' ';
      field.alternate |= text[at] == '#';
    }
    if (field.align == '<') field.fill = ' ';
    field.width = take_number(run, text, at);
    if (at < text.size() && text[at] == '.') field.precision = take_number(run, text, ++at);
    if (at >= text.size()) run.error("the format ends inside a '%'");
    field.type = text[at++];
    if (field.type == '%') {
      out.append("%", format.origin_at(at - 1));
      continue;
    }
    if (std::string_view("srdiuxXofFeEgG").find(field.type) == std::string_view::npos)
      run.error("'%", field.type, "' is not supported");
    const bool is_text = field.type == 's' || field.type == 'r';
    if (is_text) field.fill = ' ', field.align = field.align == '=' ? '>' : field.align ? field.align : '>';
    out.append(formatted(run, named ? value : next(), field));
    run.check_bytes(out.size());
  }
  // Python lets a single value go unused if it has subscripts.
  const bool may_be_unused = values.is(Kind::undefined) || values.is(Kind::dict) ||
                             (values.is(Kind::list) && values.list().shape <= JinjaList::Shape::range);
  const bool all_used =
      by_name || (is_tuple ? used == values.list().items.size() : used == 1 || may_be_unused);
  if (!all_used) run.error("'%' has values that its format does not use");
  return out;
}

namespace {

// Of "{0.name[key]!r:>10}": everything behind the braces.
class BraceFormat {
 public:
  BraceFormat(JinjaInterpreter& run, const TracedText& format, const JinjaCall& values)
      : run_(run), format_(format), text_(format.bytes()), values_(values) {}

  TracedText result() {
    TracedText out;
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t mark = std::min(text_.find_first_of("{}", at), text_.size());
      out.append(format_, at, mark);
      at = mark;
      if (at == text_.size()) break;
      const bool twice = at + 1 < text_.size() && text_[at + 1] == text_[at];
      if (twice) {
        out.append(format_, at, at + 1);
        at += 2;
        continue;
      }
      if (text_[at] == '}') run_.error("format: '}' without '{'");
      const std::size_t end = text_.find('}', at);
      if (end == std::string::npos) run_.error("format: '{' without '}'");
      out.append(field(text_.substr(at + 1, end - at - 1)));
      run_.check_bytes(out.size());
      at = end + 1;
    }
    return out;
  }

 private:
  TracedText field(const std::string& text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    std::string name = text.substr(0, colon);
    char conversion = 0;
    if (const std::size_t mark = name.find('!'); mark != std::string::npos) {
      if (mark + 2 != name.size() || (name[mark + 1] != 'r' && name[mark + 1] != 's'))
        run_.error("format: '!", name.substr(mark + 1), "' is not supported");
      conversion = name[mark + 1];
      name.resize(mark);
    }
    JinjaValue value = find(name);
    if (conversion == 'r') value = JinjaValue::of(repr_of(value));
    if (conversion == 's') value = JinjaValue::of(text_of(value));
    if (colon >= text.size() - (text.empty() ? 0 : 1)) return run_.text_of(value);
    return formatted(run_, value, parse(text.substr(colon + 1), value));
  }

  JinjaValue find(const std::string& name) {
    std::size_t at = std::min(name.find_first_of(".["), name.size());
    JinjaValue value = first(name.substr(0, at));
    while (at < name.size()) {
      const bool dot = name[at] == '.';
      const std::size_t end =
          std::min(dot ? name.find_first_of(".[", at + 1) : name.find(']', at), name.size());
      const std::string key = name.substr(at + 1, end - at - 1);
      const bool digits =
          !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (key.empty()) run_.error("format: '{", name, "}' is broken");
      value =
          dot ? run_.attribute(value, key)
              : run_.item(value, digits ? JinjaValue::of(std::int64_t(std::stol(key))) : JinjaValue::of(key));
      at = dot ? end : end + 1;
    }
    return value;
  }

  JinjaValue first(const std::string& name) {
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      for (const auto& [key, value] : values_.named)
        if (key == name) return value;
      run_.error("format: no value is named '", name, "'");
    }
    const std::size_t index = name.empty()      ? next_++
                              : name.size() > 6 ? SIZE_MAX
                                                : std::size_t(std::stol(name));
    if (index >= values_.positional.size())
      run_.error("format: there is no value ", name.empty() ? "left" : name);
    return values_.positional[index];
  }

  Field parse(const std::string& spec, const JinjaValue& value) {
    Field field;
    std::size_t at = 0;
    const auto is_align = [&](std::size_t i) {
      return i < spec.size() && std::string_view("<>^=").find(spec[i]) != std::string_view::npos;
    };
    if (is_align(1))
      field.fill = spec[0], field.align = spec[1], at = 2;
    else if (is_align(0))
      field.align = spec[0], at = 1;
    if (at < spec.size() && (spec[at] == '+' || spec[at] == '-' || spec[at] == ' '))
      field.plus = spec[at] == '+', field.space = spec[at] == ' ', ++at;
    if (at < spec.size() && spec[at] == '#') field.alternate = true, ++at;
    if (at < spec.size() && spec[at] == '0' && !field.align) field.fill = '0', field.align = '=', ++at;
    field.width = take_number(run_, spec, at);
    if (at < spec.size() && spec[at] == '.') field.precision = take_number(run_, spec, ++at);
    const bool is_text = !value.is_number();
    field.type = at < spec.size()                               ? spec[at++]
                 : is_text                                      ? 's'
                 : value.is(Kind::real) && field.precision >= 0 ? 'g'
                                                                : 's';
    if (at != spec.size() || std::string_view("sdxXofFeEgG").find(field.type) == std::string_view::npos)
      run_.error("format: ':", spec, "' is not supported");
    if (field.type == 's' && !is_text && !field.align) field.align = '>';
    return field;
  }

  JinjaInterpreter& run_;
  const TracedText& format_;
  const std::string& text_;
  const JinjaCall& values_;
  std::size_t next_ = 0;
};

}  // namespace

TracedText jinja_brace_format(JinjaInterpreter& run, const TracedText& format, const JinjaCall& values) {
  return BraceFormat(run, format, values).result();
}

}  // namespace slideway
