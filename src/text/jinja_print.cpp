// How values become text: Python's str(), repr() and json.dumps(). Every piece of a string keeps its origin.
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/error.h"
#include "text/jinja_value.h"

namespace slideway {

using Kind = JinjaValue::Kind;

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  std::string text(digits, end);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // to_chars writes exponents as Python does: e+16, e-05
  const auto plain = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr;
  text.assign(digits, plain);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

namespace {

std::string format(const char* pattern, unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

bool printable(std::int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string repr_escape(std::int32_t c, char quote) {
  switch (c) {
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (c == quote) return std::string("\\") + quote;
  if (c < 0x20 || (c >= 0x7F && !printable(c)))
    return c < 0x100     ? format("\\x%02x", unsigned(c))
           : c < 0x10000 ? format("\\u%04x", unsigned(c))
                         : format("\\U%08x", unsigned(c));
  return utf8_of(c);
}

std::string json_escape(std::int32_t c, bool ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) return format("\\u%04x", unsigned(c));
  if (ascii && c >= 0x10000)
    return format("\\u%04x", unsigned(0xD800 + ((c - 0x10000) >> 10))) +
           format("\\u%04x", unsigned(0xDC00 + ((c - 0x10000) & 0x3FF)));
  return utf8_of(c);
}

// Appends text with `escape` applied to every character that is not plain ASCII. Quotes take the neighbour's origin,
// so that a quoted string is one run.
template <class Escape>
void append_quoted(TracedText& out, const TracedText& text, char quote, const Escape& escape) {
  const std::string& bytes = text.bytes();
  out.append(std::string(1, quote), text.origin_at(0));
  std::size_t plain = 0, at = 0;
  for (; at < bytes.size(); at += char_bytes(bytes, at)) {
    const auto c = static_cast<unsigned char>(bytes[at]);
    if (c >= 0x20 && c < 0x7F && c != '\\' && c != '"' && c != '\'') continue;
    out.append(text, plain, at);
    out.append(escape(code_point(bytes, at)), text.origin_at(at));
    plain = at + char_bytes(bytes, at);
  }
  out.append(text, plain, at);
  out.append(std::string(1, quote), text.empty() ? Origin{} : text.origin_at(text.size() - 1));
}

void append_repr(TracedText& out, const JinjaValue& value);

void append_list_repr(TracedText& out, const JinjaList& list) {
  using Shape = JinjaList::Shape;
  if (list.shape == Shape::iterator)
    fail(ErrorKind::invalid_input,
         "a filter's result cannot be printed before |list or |join made something of it");
  if (list.shape == Shape::range) {
    const auto first = list.items.empty() ? 0 : list.items.front().integer();
    const auto step = list.items.size() < 2 ? 1 : list.items[1].integer() - first;
    const auto stop = list.items.empty() ? 0 : list.items.back().integer() + (step < 0 ? -1 : 1);
    out.append("range(" + std::to_string(first) + ", " + std::to_string(stop) +
               (step == 1 ? ")" : ", " + std::to_string(step) + ")"));
    return;
  }
  const bool tuple = list.shape == Shape::tuple;
  if (list.shape == Shape::view) out.append("dict_view(");
  out.append(tuple ? "(" : "[");
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, list.items[i]);
  }
  out.append(tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
  if (list.shape == Shape::view) out.append(")");
}

void append_repr(TracedText& out, const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::undefined:
      out.append("Undefined");
      break;
    case Kind::none:
      out.append("None");
      break;
    case Kind::string: {
      const std::string& bytes = value.text().bytes();
      const bool single = bytes.find('\'') == std::string::npos || bytes.find('"') != std::string::npos;
      const char quote = single ? '\'' : '"';
      append_quoted(out, value.text(), quote, [&](std::int32_t c) { return repr_escape(c, quote); });
      break;
    }
    case Kind::list:
      append_list_repr(out, value.list());
      break;
    case Kind::dict: {
      out.append("{");
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) out.append(", ");
        first = false;
        append_repr(out, key);
        out.append(": ");
        append_repr(out, item);
      }
      out.append("}");
      break;
    }
    default:
      out.append(text_of(value));
      break;
  }
}

}  // namespace

TracedText text_of(const JinjaValue& value) {
  if (const TracedText* text = value.readable()) return *text;
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::none:
      return TracedText("None");
    case Kind::boolean:
      return TracedText(value.boolean() ? "True" : "False");
    case Kind::integer:
      return value.is_big() ? value.text() : TracedText(std::to_string(value.integer()));
    case Kind::real:
      return TracedText(real_text(value.real()));
    case Kind::object:
      fail(ErrorKind::invalid_input, "a ", value.object().type_name(), " cannot be printed");
    default:
      return repr_of(value);
  }
}

TracedText repr_of(const JinjaValue& value) {
  TracedText out;
  append_repr(out, value);
  return out;
}

// --- JSON ---------------------------------------------------------------------------------------------------------

namespace {

class JsonWriter {
 public:
  JsonWriter(TracedText& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const JinjaValue& value) {
    switch (value.kind()) {
      case Kind::none:
        out_.append("null");
        break;
      case Kind::boolean:
        out_.append(value.boolean() ? "true" : "false");
        break;
      case Kind::integer:
        out_.append(text_of(value));
        break;
      case Kind::real:
        out_.append(real(value.real()));
        break;
      case Kind::string:
        quoted(value.text());
        break;
      case Kind::list:
        list(value.list());
        break;
      case Kind::dict:
        dict(value.dict());
        break;
      default:
        fail(ErrorKind::invalid_input, "a value of type ", value.type_name(), " cannot be written as JSON");
    }
  }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void quoted(const TracedText& text) {
    append_quoted(out_, text, '"',
                  [&](std::int32_t c) { return c == '\'' ? "'" : json_escape(c, style_.ascii); });
  }

  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  template <class Items, class Write>
  void bracketed(const char* open, const char* close, const Items& items, const Write& write_item) {
    out_.append(open);
    if (!items.empty()) {
      ++level_;
      bool first = true;
      for (const auto& item : items) {
        if (!first) out_.append(style_.item_separator);
        first = false;
        new_line();
        write_item(item);
      }
      --level_;
      new_line();
    }
    out_.append(close);
  }

  void list(const JinjaList& list) {
    if (list.shape > JinjaList::Shape::tuple)
      fail(ErrorKind::invalid_input, "a value of type ", JinjaValue::of(&list).type_name(),
           " cannot be written as JSON");
    bracketed("[", "]", list.items, [&](const JinjaValue& item) { write(item); });
  }

  void dict(const JinjaDict& dict) {
    auto entries = dict.entries;
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        const auto order = compare(a.first, b.first);
        if (!order) fail(ErrorKind::invalid_input, "tojson(sort_keys=true): the keys have no order");
        return *order < 0;
      });
    bracketed("{", "}", entries, [&](const auto& entry) {
      key(entry.first);
      out_.append(style_.key_separator);
      write(entry.second);
    });
  }

  void key(const JinjaValue& key) {
    if (key.is(Kind::string)) return quoted(key.text());
    if (key.is(Kind::list)) fail(ErrorKind::invalid_input, "a tuple cannot be a key in JSON");
    out_.append("\"");
    write(key);
    out_.append("\"");
  }

  TracedText& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

TracedText json_of(const JinjaValue& value, const JsonStyle& style) {
  TracedText out;
  JsonWriter(out, style).write(value);
  return out;
}

}  // namespace slideway
