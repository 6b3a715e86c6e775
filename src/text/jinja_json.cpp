// JSON text to values: the messages, tools and variables that a template is given.
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/jinja_value.h"

namespace slideway {
namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(JinjaHeap& heap, std::int32_t source, bool messages)
      : heap_(heap), source_(source), messages_(messages) {}

  bool null() override { return put(JinjaValue()); }
  bool boolean(bool value) override { return put(JinjaValue::of(value)); }
  bool number_integer(number_integer_t value) override { return put(JinjaValue::of(std::int64_t(value))); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > std::uint64_t(INT64_MAX)) return put(JinjaValue::big_integer(std::to_string(value)));
    return put(JinjaValue::of(std::int64_t(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return put(JinjaValue::big_integer(text));
    return put(JinjaValue::of(double(value)));
  }
  bool string(string_t& value) override { return put(JinjaValue::of(std::move(value), origin())); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(string_t& name) override {
    stack_.back().key = JinjaValue::of(std::move(name), origin());
    return true;
  }
  bool end_object() override {
    auto entries = std::move(stack_.back().entries);
    stack_.pop_back();
    return put(JinjaValue::of(heap_.dict(std::move(entries))));
  }
  bool end_array() override {
    auto items = std::move(stack_.back().items);
    stack_.pop_back();
    return put(JinjaValue::of(heap_.list(std::move(items))));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    const std::string what = e.what();  // "[json.exception…] parse error at line 1, column 5: …"
    const std::size_t colon = what.find(": ");
    fail(ErrorKind::invalid_input, "JSON is broken at byte ", position,
         colon == std::string::npos ? "" : ": ", colon == std::string::npos ? "" : what.substr(colon + 2));
  }

  JinjaValue result;

 private:
  struct Frame {
    bool object;
    JinjaValue key;
    std::vector<JinjaValue> items;
    std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  };

  Origin origin() const {
    if (!messages_ || stack_.empty()) return {source_};
    return {std::int32_t(stack_.front().items.size())};
  }
  bool open(bool object) {
    if (stack_.size() >= std::size_t(JinjaHeap::kMaxDepth))
      fail(ErrorKind::invalid_input, "JSON nests deeper than ", JinjaHeap::kMaxDepth);
    stack_.push_back({object, {}, {}, {}});
    return true;
  }
  bool put(JinjaValue value) {
    if (stack_.empty())
      result = std::move(value);
    else if (stack_.back().object)
      stack_.back().entries.emplace_back(std::move(stack_.back().key), std::move(value));
    else
      stack_.back().items.push_back(std::move(value));
    return true;
  }

  JinjaHeap& heap_;
  std::int32_t source_;
  bool messages_;
  std::vector<Frame> stack_;
};

}  // namespace

JinjaValue value_from_json(JinjaHeap& heap, std::string_view json, std::int32_t source, bool messages) {
  Builder builder(heap, source, messages);
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return builder.result;
}

}  // namespace slideway
