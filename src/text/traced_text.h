// TracedText: a UTF-8 string whose bytes remember where they came from, whatever was done to them on the way.
//
// A chat template writes control tokens and users write text that may spell them. After trimming, joining, slicing
// and escaping, only a mark on every byte still tells the two apart. Marks lie in runs, one run for most strings.
//
// Units    bytes, except where a name says chars (code points)
// Threads  values: const use from any number of threads
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slideway {

struct Origin {
  static constexpr std::int32_t kTemplate = -1;  // written by the template
  static constexpr std::int32_t kGiven = -2;     // a variable that is no message: tools, options
  std::int32_t source = kTemplate;               // >= 0: the message of that index
  bool trained = false;                          // went through a {% generation %} block
  bool operator==(const Origin&) const = default;
};

class TracedText {
 public:
  struct Run {
    std::size_t end;  // where it ends; it begins where the run before it ends
    Origin origin;
  };

  TracedText() = default;
  explicit TracedText(std::string bytes, Origin origin = {});

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }
  Origin origin_at(std::size_t byte) const;  // of the template where the text is empty

  void append(std::string_view bytes, Origin origin = {});
  void append(const TracedText& other) { append(other, 0, other.size()); }
  void append(const TracedText& other, std::size_t begin, std::size_t end);
  void mark_trained();
  TracedText slice(std::size_t begin, std::size_t end) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ; none is empty
};

// --- code points of valid UTF-8 ---------------------------------------------------------------------------------
// The bytes of the character that begins at `at`.
std::size_t char_bytes(std::string_view text, std::size_t at);
std::int32_t code_point(std::string_view text, std::size_t at);
std::size_t count_chars(std::string_view text);
std::size_t byte_of_char(std::string_view text, std::size_t chars);  // where the chars-th character begins
bool is_utf8(std::string_view text, std::size_t* bad = nullptr);     // bad: the first byte that is wrong
std::string utf8_of(std::int32_t code_point);

// As Python's str methods see them.
bool is_space(std::int32_t code_point);
// The range that is left when characters of `chars` (empty: spaces) go from the left and the right.
std::pair<std::size_t, std::size_t> stripped(std::string_view text, bool left, bool right,
                                             std::string_view chars = {});
enum class CharCase { lower, upper, title };
TracedText with_case(const TracedText& text, CharCase first,
                     CharCase rest);  // of the first and the other chars

}  // namespace slideway
