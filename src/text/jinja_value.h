// JinjaValue: what a template computes with, as Python has it: undefined, none, numbers, strings, lists, mappings.
//
// A value is small and copied freely. Strings are shared; lists, mappings and objects belong to a JinjaHeap, which
// frees them together at the end of a rendering (so that values which contain themselves do no harm). They do not
// change once made, except for namespaces.
//
// Two values have no twin in Python. A *blank* none is none by every test, but reads as "" where text is needed: the
// null content of a message with tool calls. A mapping with a *spelling* reads as that text: the arguments of a
// tool call, which arrive as a string of JSON, and which some templates join to text while others walk through them.
//
// Owns     containers: the heap
// Threads  one at a time for a heap and the values in it
// Errors   invalid_input
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/traced_text.h"

namespace slideway {

struct JinjaList;
struct JinjaDict;
class JinjaObject;

class JinjaValue {
 public:
  enum class Kind : std::uint8_t { undefined, none, boolean, integer, real, string, list, dict, object };

  JinjaValue() = default;  // none
  static JinjaValue undefined(std::string why);
  static JinjaValue blank();
  static JinjaValue of(bool value);
  static JinjaValue of(std::int64_t value);
  static JinjaValue of(double value);
  static JinjaValue of(TracedText value);
  static JinjaValue of(std::string value, Origin origin = {}) {
    return of(TracedText(std::move(value), origin));
  }
  static JinjaValue of(const char* value) { return of(TracedText(value)); }  // or it would be a boolean
  static JinjaValue of(const JinjaList* list);
  static JinjaValue of(const JinjaDict* dict);
  static JinjaValue of(JinjaObject* object);
  static JinjaValue big_integer(std::string digits);  // too large to compute with, but it prints

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_blank() const { return kind_ == Kind::none && text_; }
  bool is_big() const { return kind_ == Kind::integer && text_; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_whole() const { return (kind_ == Kind::boolean || kind_ == Kind::integer) && !is_big(); }

  bool boolean() const { return number_.integer != 0; }
  std::int64_t integer() const { return number_.integer; }  // of whole numbers, true as 1
  double real() const;                                      // of any number
  const TracedText& text() const { return *text_; }         // of strings
  const JinjaList& list() const { return *list_; }
  const JinjaDict& dict() const { return *dict_; }
  JinjaObject& object() const { return *object_; }
  const std::string& why() const { return text_->bytes(); }  // of undefined: "'x' is undefined"
  // A string's text, or what a blank or a spelled mapping reads as; null for everything else.
  const TracedText* readable() const;

  bool truth() const;
  std::string type_name() const;                // as Python calls it: "str", "dict", …
  int depth() const;                            // 0 for scalars, else 1 + that of the deepest item
  bool same_as(const JinjaValue& other) const;  // Python's `is`

 private:
  Kind kind_ = Kind::none;
  union {
    std::int64_t integer;
    double real;
  } number_ = {0};
  union {
    const JinjaList* list_ = nullptr;
    const JinjaDict* dict_;
    JinjaObject* object_;
  };
  std::shared_ptr<const TracedText> text_;
};

struct JinjaList {
  // range, view (of a mapping) and iterator (what filters like map give) only differ in what may be done with them.
  enum class Shape : std::uint8_t { list, tuple, range, view, iterator };
  Shape shape = Shape::list;
  std::vector<JinjaValue> items;
  int depth = 1;
  mutable bool consumed = false;  // iterators run once
};

struct JinjaDict {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;  // in order of insertion
  std::optional<TracedText> spelling;
  int depth = 1;
  const JinjaValue* find(const JinjaValue& key) const;
  const JinjaValue* find(std::string_view key) const;

 private:
  friend class JinjaHeap;
  void index();
  std::unordered_map<std::string, std::size_t> index_;  // of large mappings, by the key's canonical text
};

class JinjaInterpreter;
struct JinjaCall;

// What is none of the above: functions, macros, namespaces, a loop.
class JinjaObject {
 public:
  virtual ~JinjaObject() = default;
  virtual std::string type_name() const = 0;
  virtual bool callable() const { return false; }
  virtual JinjaValue call(JinjaInterpreter& run, const JinjaCall& arguments);
  virtual std::optional<JinjaValue> attribute(JinjaInterpreter& run, const std::string& name);
};

class JinjaHeap {
 public:
  static constexpr int kMaxDepth = 100;  // of lists in lists; so whatever walks through a value ends

  const JinjaList* list(std::vector<JinjaValue> items, JinjaList::Shape shape = JinjaList::Shape::list);
  const JinjaDict* dict(
      std::vector<std::pair<JinjaValue, JinjaValue>> entries);  // of equal keys the last one wins
  const JinjaDict* spelled_dict(const JinjaDict& dict, TracedText spelling);
  template <class T, class... Args>
  T* object(Args&&... args) {
    auto made = std::make_unique<T>(std::forward<Args>(args)...);
    T* object = made.get();
    objects_.push_back(std::move(made));
    return object;
  }

 private:
  std::vector<std::unique_ptr<JinjaList>> lists_;
  std::vector<std::unique_ptr<JinjaDict>> dicts_;
  std::vector<std::unique_ptr<JinjaObject>> objects_;
};

// Python's ==. Values of different kinds are unequal, except numbers.
bool equal(const JinjaValue& a, const JinjaValue& b);
// Python's <: negative, 0 or positive; nothing where the two have no order.
std::optional<int> compare(const JinjaValue& a, const JinjaValue& b);
// What a mapping's key is found by: equal keys have equal texts. invalid_input for lists and mappings.
std::string canonical_key(const JinjaValue& key);

std::string real_text(double value);          // Python's repr of a float
TracedText text_of(const JinjaValue& value);  // Python's str()
TracedText repr_of(const JinjaValue& value);  // Python's repr()

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; absent: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
TracedText json_of(const JinjaValue& value, const JsonStyle& style = {});  // Python's json.dumps()

// Strings get origin.source = source; with `messages` the n-th element of the outermost array gets source n.
JinjaValue value_from_json(JinjaHeap& heap, std::string_view json, std::int32_t source,
                           bool messages = false);

}  // namespace slideway
