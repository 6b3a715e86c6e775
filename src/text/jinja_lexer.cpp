#include "text/jinja_lexer.h"

#include <cctype>
#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace slideway {

using Token = JinjaToken;

std::string JinjaSource::where(std::size_t at) const {
  std::size_t line = 1, begin = 0;
  for (std::size_t i = 0; i < at && i < text.size(); ++i)
    if (text[i] == '\n') ++line, begin = i + 1;
  const std::size_t column = 1 + count_chars(std::string_view(text).substr(begin, at - begin));
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

JinjaSource make_jinja_source(const std::string& text) {
  std::size_t bad = 0;
  if (!is_utf8(text, &bad)) fail(ErrorKind::corrupt, "chat template: byte ", bad, " is not UTF-8");
  JinjaSource source;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      source.text += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      source.text += text[i];
    }
  }
  if (source.text.ends_with('\n')) source.text.pop_back();
  return source;
}

namespace {

class Lexer {
 public:
  explicit Lexer(const JinjaSource& source) : source_(source), text_(source.text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    add(Token::Kind::end, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::size_t at, const std::string& what) const {
    fail(ErrorKind::corrupt, "chat template, ", source_.where(at), ": ", what);
  }
  void add(Token::Kind kind, std::size_t at, std::string text = {}, JinjaValue value = {}) {
    tokens_.push_back({kind, at, std::move(text), std::move(value)});
  }
  bool here(std::string_view what, std::size_t at) const { return text_.compare(at, what.size(), what) == 0; }
  bool here(std::string_view what) const { return here(what, at_); }
  std::size_t skip_space(std::size_t at) const {
    while (at < text_.size() && is_space(code_point(text_, at))) at += char_bytes(text_, at);
    return at;
  }

  // Text up to the next mark, the mark, and what is inside it.
  void root() {
    std::size_t mark = at_;
    while (true) {
      mark = text_.find('{', mark);
      if (mark == std::string::npos) {
        add(Token::Kind::data, at_, text_.substr(at_));
        at_ = text_.size();
        return;
      }
      if (here("{{", mark) || here("{%", mark) || here("{#", mark)) break;
      ++mark;
    }
    const char kind = text_[mark + 1];
    const std::size_t sign = mark + 2;
    add_data(mark, sign, kind != '{');
    const bool has_sign = sign < text_.size() && (text_[sign] == '-' || text_[sign] == '+');
    at_ = sign + has_sign;
    if (kind == '#')
      comment(mark);
    else if (kind == '{')
      inside(mark, Token::Kind::output_begin, Token::Kind::output_end);
    else if (const std::size_t after = raw_mark("raw", at_, false); after > 0)
      raw(mark, after);
    else
      inside(mark, Token::Kind::block_begin, Token::Kind::block_end);
  }

  // The data before a mark whose sign (if any) is at `sign`.
  void add_data(std::size_t mark, std::size_t sign, bool strip_blanks) {
    std::size_t end = mark;
    const char control = sign < text_.size() ? text_[sign] : ' ';
    const std::string_view data = std::string_view(text_).substr(at_, mark - at_);
    if (control == '-') {
      end = at_ + stripped(data, false, true).second;
    } else if (control != '+' && strip_blanks) {
      const std::size_t newline = data.rfind('\n');
      const bool starts_line = newline != std::string_view::npos || at_ == 0 || text_[at_ - 1] == '\n';
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if (starts_line && stripped(data.substr(line), true, false).first == data.size() - line)
        end = at_ + line;
    }
    if (end > at_) add(Token::Kind::data, at_, text_.substr(at_, end - at_));
  }

  // Moves past "%}", "#}" with its sign and what they swallow, if it is here.
  bool take_end(std::string_view end, bool trims_newline) {
    std::size_t at = at_;
    const bool minus = here("-", at) && here(end, at + 1);
    const bool plus = here("+", at) && here(end, at + 1) && end != "}}";
    if (!minus && !plus && !here(end, at)) return false;
    at += (minus || plus) + end.size();
    if (minus)
      at = skip_space(at);
    else if (!plus && trims_newline && here("\n", at))
      ++at;
    at_ = at;
    return true;
  }

  void comment(std::size_t begin) {
    while (at_ < text_.size()) {
      if (take_end("#}", true)) return;
      ++at_;
    }
    error(begin, "the comment that begins here has no end");
  }

  // If "raw %}" (or "endraw %}") is at `at`: where the text after it begins, else 0.
  std::size_t raw_mark(std::string_view word, std::size_t at, bool trims_newline) const {
    at = skip_space(at);
    if (!here(word, at)) return 0;
    at = skip_space(at + word.size());
    if (here("-%}", at)) return skip_space(at + 3);
    if (trims_newline && here("+%}", at)) return at + 3;
    if (!here("%}", at)) return 0;
    at += 2;
    return trims_newline && here("\n", at) ? at + 1 : at;
  }

  void raw(std::size_t begin, std::size_t after) {
    at_ = after;
    for (std::size_t mark = at_; (mark = text_.find("{%", mark)) != std::string::npos; ++mark) {
      std::size_t sign = mark + 2;
      const bool has_sign = sign < text_.size() && (text_[sign] == '-' || text_[sign] == '+');
      const std::size_t end = raw_mark("endraw", sign + has_sign, true);
      if (end == 0) continue;
      add_data(mark, sign, true);
      at_ = end;
      return;
    }
    error(begin, "the raw block that begins here has no {% endraw %}");
  }

  void inside(std::size_t mark, Token::Kind begin, Token::Kind end) {
    add(begin, mark);
    const bool block = begin == Token::Kind::block_begin;
    std::string open;  // brackets that wait for their partners
    while (true) {
      if (at_ >= text_.size()) error(mark, block ? "'{%' without '%}'" : "'{{' without '}}'");
      const std::size_t at = at_;
      if (open.empty() && take_end(block ? "%}" : "}}", block)) return add(end, at);
      if (const std::size_t after = skip_space(at_); after > at_)
        at_ = after;
      else
        token(open);
    }
  }

  void token(std::string& open) {
    const unsigned char c = static_cast<unsigned char>(text_[at_]);
    if (std::isdigit(c)) return number();
    if (std::isalpha(c) || c == '_' || c >= 0x80) return name();
    if (c == '\'' || c == '"') return string();
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="})
      if (here(op)) {
        add(Token::Kind::op, at_, std::string(op));
        at_ += 2;
        return;
      }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(char(c)) == std::string_view::npos)
      error(at_, "unexpected character '" + text_.substr(at_, char_bytes(text_, at_)) + "'");
    balance(open, char(c));
    add(Token::Kind::op, at_, std::string(1, char(c)));
    ++at_;
  }

  void balance(std::string& open, char c) const {
    static constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (const auto i = kOpen.find(c); i != std::string_view::npos) open += kClose[i];
    if (kClose.find(c) == std::string_view::npos) return;
    if (open.empty()) error(at_, std::string("unexpected '") + c + "'");
    if (open.back() != c) error(at_, std::string("unexpected '") + c + "', expected '" + open.back() + "'");
    open.pop_back();
  }

  void name() {
    const std::size_t begin = at_;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (!(std::isalnum(c) || c == '_' || (c >= 0x80 && !is_space(code_point(text_, at_))))) break;
      at_ += char_bytes(text_, at_);
    }
    add(Token::Kind::name, begin, text_.substr(begin, at_ - begin));
  }

  // Digits with single underscores between them, from `at`; appends them to `digits`.
  std::size_t digits(std::size_t at, std::string& out, const char* set = "0123456789") const {
    const std::string_view allowed(set);
    while (at < text_.size()) {
      const char c = char(std::tolower(static_cast<unsigned char>(text_[at])));
      const bool gap = c == '_' && at + 1 < text_.size() && !out.empty() &&
                       allowed.find(char(std::tolower(static_cast<unsigned char>(text_[at + 1])))) !=
                           std::string_view::npos;
      if (!gap && allowed.find(c) == std::string_view::npos) break;
      if (!gap) out += c;
      ++at;
    }
    return at;
  }

  void number() {
    const std::size_t begin = at_;
    if (text_[at_] == '0' && at_ + 1 < text_.size() && prefixed(begin)) return;
    std::string text;
    std::size_t at = digits(at_, text);
    const bool after_dot = begin > 0 && text_[begin - 1] == '.';  // x.1.5 is two subscripts
    bool real = false;
    if (std::string fraction; !after_dot && here(".", at)) {
      const std::size_t end = digits(at + 1, fraction);
      if (!fraction.empty()) text += "." + fraction, at = end, real = true;
    }
    if (!after_dot && at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      const bool sign = here("+", at + 1) || here("-", at + 1);
      std::string exponent;
      const std::size_t end = digits(at + 1 + sign, exponent);
      if (!exponent.empty()) text += "e" + text_.substr(at + 1, sign) + exponent, at = end, real = true;
    }
    at_ = at;
    add(Token::Kind::number, begin, text,
        real ? JinjaValue::of(std::strtod(text.c_str(), nullptr)) : whole(text, 10));
  }

  bool prefixed(std::size_t begin) {
    const char kind = char(std::tolower(static_cast<unsigned char>(text_[at_ + 1])));
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (base == 0) return false;
    std::string text = "0";
    const std::size_t end = digits(at_ + 2, text,
                                   base == 16  ? "0123456789abcdef"
                                   : base == 8 ? "01234567"
                                               : "01");
    if (text.size() == 1) return false;
    const JinjaValue value = whole(text, base);
    if (value.is_big()) error(begin, "the number is too large");
    at_ = end;
    add(Token::Kind::number, begin, text, value);
    return true;
  }

  static JinjaValue whole(const std::string& text, int base) {
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return status == std::errc() ? JinjaValue::of(value) : JinjaValue::big_integer(text);
  }

  void string() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    std::string out;
    while (true) {
      if (at_ >= text_.size()) error(begin, "the string that begins here has no end");
      const char c = text_[at_++];
      if (c == quote) break;
      if (c != '\\')
        out += c;
      else
        escape(begin, out);
    }
    add(Token::Kind::string, begin, std::move(out));
  }

  // What follows a backslash, as in a Python string.
  void escape(std::size_t begin, std::string& out) {
    if (at_ >= text_.size()) error(begin, "the string that begins here has no end");
    const char c = text_[at_++];
    static constexpr std::string_view kFrom = "ntr\\'\"abfv", kTo = "\n\t\r\\'\"\a\b\f\v";
    if (const auto i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
    } else if (c == '\n') {  // the string goes on in the next line
    } else if (c >= '0' && c <= '7') {
      out += utf8_of(coded(at_ - 1, 1, 3, 8));
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      out += utf8_of(coded(at_, count, count, 16));
    } else if (c == 'N') {
      error(at_ - 2, "characters by name (\\N{…}) are not supported");
    } else {
      out += '\\';
      out += c;
    }
  }

  std::int32_t coded(std::size_t from, std::size_t least, std::size_t most, int base) {
    std::int64_t code = 0;
    std::size_t to = from;
    for (; to < text_.size() && to < from + most; ++to) {
      std::int64_t digit = 0;
      const auto parsed = std::from_chars(&text_[to], &text_[to] + 1, digit, base);
      if (parsed.ec != std::errc()) break;
      code = code * base + digit;
    }
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (to - from < least || code > 0x10FFFF || surrogate) error(from - 1, "the escape is no character");
    at_ = to;
    return std::int32_t(code);
  }

  const JinjaSource& source_;
  const std::string& text_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<JinjaToken> tokenize_jinja(const JinjaSource& source) {
  return Lexer(source).run();
}

}  // namespace slideway
