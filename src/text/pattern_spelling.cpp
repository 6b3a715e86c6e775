// From Oniguruma's spelling of a pattern to PCRE2's.
#include <cctype>
#include <cstring>

#include "core/error.h"
#include "text/pattern.h"

namespace slideway {
namespace {

constexpr const char* kSpace =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{"
    "3000}";
constexpr const char* kNotSpace =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-"
    "\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}";

class Respelling {
 public:
  Respelling(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    // From each place in a run of white space this would look for the end again; starting only where the run starts
    // (or a match ended) finds the same matches.
    if (in_ == "\\s+$") return std::string("(?:\\G|(?<![") + kSpace + "]))[" + kSpace + "]+$";
    while (at_ < in_.size()) {
      switch (in_[at_]) {
        case '\\':
          escape(false);
          break;
        case '[':
          character_class();
          break;
        case '(':
          group();
          break;
        case '{':
          quantifier();
          break;
        default:
          out_ += in_[at_++];
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view part, const char* why) const {
    fail(ErrorKind::unsupported, where_, ": the pattern ", in_, " holds ", part, " at byte ", at_, ": ", why);
  }
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void escape(bool in_class) {
    if (at_ + 1 == in_.size()) refuse("\\", "nothing follows it");
    const char c = in_[at_ + 1];
    const std::string_view part = in_.substr(at_, 2);
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {  // a sign that stands for itself
      copy(2);
      return;
    }
    switch (c) {
      case 's':
        spell(in_class, kSpace, false);
        break;
      case 'S':
        in_class ? spell(true, kNotSpace, false) : spell(false, kSpace, true);
        break;
      case 'd':
        out_ += "\\p{Nd}";
        break;
      case 'D':
        out_ += "\\P{Nd}";
        break;
      case 'v':
        out_ += "\\x0B";
        break;  // to PCRE2 \v is a class
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        out_ += part;
        break;
      case 'p':
      case 'P':
        property();
        return;
      case 'x':
        hexadecimal();
        return;
      case 'u':
        unicode_escape();
        return;
      case 'A':
      case 'z':
      case 'Z':
        if (!in_class) {
          out_ += part;
          break;
        }
        [[fallthrough]];
      default:
        refuse(part, "it is not among the parts that are known to match the same text here");
    }
    at_ += 2;
  }

  void spell(bool in_class, const char* ranges, bool negated) {
    if (in_class) {
      out_ += ranges;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += ranges;
      out_ += ']';
    }
  }

  void copy(std::size_t bytes) {
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }

  void property() {
    const std::size_t close = in_.find('}', at_);
    if (in_.size() < at_ + 3 || in_[at_ + 2] != '{' || close == std::string_view::npos) {
      refuse(in_.substr(at_, 2), "a property is written \\p{Name}");
    }
    copy(close + 1 - at_);  // a name that PCRE2 does not know fails to compile
  }

  void hexadecimal() {
    if (in_.size() > at_ + 2 && in_[at_ + 2] == '{') {
      const std::size_t close = in_.find('}', at_);
      if (close == std::string_view::npos) refuse("\\x{", "it is not closed");
      copy(close + 1 - at_);
      return;
    }
    const std::string_view digits = in_.substr(at_ + 2, 2);
    if (digits.size() < 2 || std::strchr("01234567", digits[0]) == nullptr) {
      refuse("\\x", "a byte above 7F is only part of a character");
    }
    copy(4);
  }

  void unicode_escape() {
    if (in_.size() < at_ + 6) refuse("\\u", "four digits must follow");
    out_ += "\\x{";
    out_ += in_.substr(at_ + 2, 4);
    out_ += '}';
    at_ += 6;
  }

  void character_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) refuse("[]", "an empty class");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape(true);
      } else if (in_[at_] == '[') {
        refuse("a class in a class", "Oniguruma and PCRE2 read it differently");
      } else if (next_is("&&")) {
        refuse("&&", "PCRE2 has no intersection of classes");
      } else {
        copy(1);
      }
    }
    if (at_ == in_.size()) refuse("[", "it is not closed");
    copy(1);
  }

  void group() {
    if (next_is("(*")) refuse("(*", "it is a command to PCRE2");
    if (!next_is("(?")) return copy(1);
    for (const char* known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:", "(?i)", "(?-i)"}) {
      if (next_is(known)) return copy(std::strlen(known));
    }
    refuse(in_.substr(at_, 4), "this kind of group is not known to match the same text here");
  }

  void quantifier() {
    const std::size_t close = in_.find('}', at_);
    if (next_is("{,") || close == std::string_view::npos) {
      refuse("{", "a quantifier is written {n}, {n,} or {n,m}");
    }
    copy(close + 1 - at_);
    if (next_is("+") || next_is("?")) refuse(in_.substr(at_ - 1, 2), "the two languages read it differently");
  }

  std::string_view in_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string pcre2_spelling(std::string_view oniguruma, const std::string& where) {
  return Respelling(oniguruma, where).run();
}

}  // namespace slideway
