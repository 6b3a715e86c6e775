// What Python's operators, subscripts and attributes do to values.
#include <algorithm>
#include <cmath>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"

namespace slideway {

using Kind = JinjaValue::Kind;
using Op = JinjaExpr::Op;
using Shape = JinjaList::Shape;

namespace {

bool is_sequence(const JinjaValue& value) {
  return value.is(Kind::list) && value.list().shape <= Shape::tuple;
}

// The character of a text at a Python index; nothing when there is none.
std::optional<std::pair<std::size_t, std::size_t>> char_at(const std::string& bytes, std::int64_t index) {
  if (index < 0) index += std::int64_t(count_chars(bytes));
  if (index < 0) return std::nullopt;
  const std::size_t at = byte_of_char(bytes, std::size_t(index));
  if (at >= bytes.size()) return std::nullopt;
  return std::pair{at, at + char_bytes(bytes, at)};
}

std::string no_attribute(const JinjaValue& object, const std::string& name) {
  return "'" + (object.is(Kind::none) ? "None" : object.type_name() + " object") + "' has no attribute '" +
         name + "'";
}

// Methods that would change what they are called on, which the sandbox forbids.
bool changes(const JinjaValue& object, const std::string& name) {
  static constexpr const char* kList[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};
  static constexpr const char* kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (object.is(Kind::dict) && in(kDict)) ||
         (object.is(Kind::list) && object.list().shape == Shape::list && in(kList));
}

}  // namespace

// --- arithmetic ---------------------------------------------------------------------------------------------------

namespace {

JinjaValue whole_result(JinjaInterpreter& run, Op op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case Op::add:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case Op::subtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case Op::multiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case Op::floor_divide:
    case Op::modulo: {
      if (b == 0) run.error("division by zero");
      if (b == -1) {  // INT64_MIN / -1
        if (op == Op::modulo) return JinjaValue::of(std::int64_t(0));
        overflow = __builtin_sub_overflow(std::int64_t(0), a, &out);
        break;
      }
      const bool below = a % b != 0 && (a < 0) != (b < 0);  // Python rounds down
      out = op == Op::modulo ? a % b + (below ? b : 0) : a / b - below;
      break;
    }
    case Op::power: {
      if (b < 0) {
        if (a == 0) run.error("0 has no negative power");
        return JinjaValue::of(std::pow(double(a), double(b)));
      }
      out = 1;
      for (std::int64_t i = 0; i < b && !overflow && !(out == 0 || (out == 1 && i > 0) || (a == -1 && i > 1));
           ++i)
        overflow = __builtin_mul_overflow(out, a, &out);
      if (a == -1) out = b % 2 == 0 ? 1 : -1;
      break;
    }
    default:
      break;
  }
  if (overflow) run.error("a whole number passes 64 bits");
  return JinjaValue::of(out);
}

JinjaValue real_result(JinjaInterpreter& run, Op op, double a, double b) {
  if (b == 0 && (op == Op::divide || op == Op::floor_divide || op == Op::modulo))
    run.error("division by zero");
  switch (op) {
    case Op::add:
      return JinjaValue::of(a + b);
    case Op::subtract:
      return JinjaValue::of(a - b);
    case Op::multiply:
      return JinjaValue::of(a * b);
    case Op::divide:
      return JinjaValue::of(a / b);
    case Op::modulo: {
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      return JinjaValue::of(rest == 0 ? std::copysign(0.0, b) : rest);
    }
    case Op::floor_divide: {
      double rest = std::fmod(a, b);
      double whole = (a - rest) / b;
      if (rest != 0 && (rest < 0) != (b < 0)) whole -= 1;
      if (whole == 0) return JinjaValue::of(std::copysign(0.0, a / b));
      return JinjaValue::of(whole - std::floor(whole) > 0.5 ? std::floor(whole) + 1 : std::floor(whole));
    }
    case Op::power: {
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) run.error("a power is out of range");
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) run.error("the power is a complex number");
      return JinjaValue::of(power);
    }
    default:
      run.error("no such operator");
  }
}

JinjaValue repeated(JinjaInterpreter& run, const JinjaValue& what, std::int64_t times) {
  const std::size_t count = std::size_t(std::max<std::int64_t>(times, 0));
  if (const TracedText* text = what.readable()) {
    if (text->empty() || count == 0) return run.make(TracedText());
    run.check_bytes(count > SIZE_MAX / text->size() ? SIZE_MAX : count * text->size());
    TracedText out;
    for (std::size_t i = 0; i < count; ++i) out.append(*text);
    return run.make(std::move(out));
  }
  const auto& items = what.list().items;
  if (!items.empty()) run.step(count > SIZE_MAX / 2 / items.size() ? SIZE_MAX / 2 : count * items.size());
  std::vector<JinjaValue> out;
  for (std::size_t i = 0; i < count && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return run.make(std::move(out), what.list().shape);
}

}  // namespace

JinjaValue JinjaInterpreter::binary(Op op, const JinjaValue& left, const JinjaValue& right) {
  if (op == Op::modulo && left.is(Kind::string)) return make(jinja_percent(*this, left.text(), right));
  need_defined(left);
  need_defined(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_whole() && right.is_whole() && op != Op::divide)
      return whole_result(*this, op, left.integer(), right.integer());
    if (left.is_big() || right.is_big()) error("a whole number passes 64 bits");
    return real_result(*this, op, left.real(), right.real());
  }
  const TracedText* a = left.readable();
  const TracedText* b = right.readable();
  if (op == Op::add && a && b && !(left.is(Kind::dict) && right.is(Kind::dict))) {
    check_bytes(a->size() + b->size());
    TracedText text = *a;
    text.append(*b);
    return make(std::move(text));
  }
  if (op == Op::add && is_sequence(left) && is_sequence(right) && left.list().shape == right.list().shape) {
    std::vector<JinjaValue> items = left.list().items;
    items.insert(items.end(), right.list().items.begin(), right.list().items.end());
    return make(std::move(items), left.list().shape);
  }
  const auto repeatable = [](const JinjaValue& value) {
    return value.is(Kind::string) || is_sequence(value);
  };
  if (op == Op::multiply && repeatable(left) && right.is_whole())
    return repeated(*this, left, right.integer());
  if (op == Op::multiply && repeatable(right) && left.is_whole())
    return repeated(*this, right, left.integer());
  static constexpr const char* kOps[] = {"+", "-", "*", "/", "//", "%", "**"};
  error("'", kOps[int(op)], "' is not defined for ", left.type_name(), " and ", right.type_name());
}

// --- comparison ---------------------------------------------------------------------------------------------------

bool JinjaInterpreter::ordered(Op op, const JinjaValue& left, const JinjaValue& right) {
  switch (op) {
    case Op::eq:
      return equal(left, right);
    case Op::ne:
      return !equal(left, right);
    case Op::in:
      return contains(right, left);
    case Op::not_in:
      return !contains(right, left);
    default:
      break;
  }
  need_defined(left);
  need_defined(right);
  const auto is_nan = [](const JinjaValue& value) {
    return value.is(Kind::real) && std::isnan(value.real());
  };
  if (is_nan(left) || is_nan(right)) return false;
  const auto order = compare(left, right);
  if (!order) error("a ", left.type_name(), " and a ", right.type_name(), " have no order");
  switch (op) {
    case Op::lt:
      return *order < 0;
    case Op::le:
      return *order <= 0;
    case Op::gt:
      return *order > 0;
    default:
      return *order >= 0;
  }
}

bool JinjaInterpreter::contains(const JinjaValue& container, const JinjaValue& value) {
  if (container.is(Kind::undefined)) return false;
  if (container.is(Kind::dict)) {
    if (value.is(Kind::dict) || (value.is(Kind::list) && value.list().shape == Shape::list))
      error("a ", value.type_name(), " is no key of a mapping");
    if (value.is(Kind::list) && value.list().shape != Shape::tuple) return false;
    return container.dict().find(value) != nullptr;
  }
  if (const TracedText* text = container.readable()) {
    const TracedText* part = value.readable();
    if (!part) error("'in' a text needs a text on its left, found a ", value.type_name());
    step(text->size() / 64);
    return text->bytes().find(part->bytes()) != std::string::npos;
  }
  for (const JinjaValue& item : items_of(container))
    if (equal(item, value)) return true;
  return false;
}

// --- parts of values ------------------------------------------------------------------------------------------------

std::vector<JinjaValue> JinjaInterpreter::items_of(const JinjaValue& value) {
  if (value.is(Kind::undefined)) return {};
  if (value.is(Kind::list)) {
    const JinjaList& list = value.list();
    step(list.items.size());
    if (list.shape == Shape::iterator && std::exchange(list.consumed, true)) return {};
    return list.items;
  }
  std::vector<JinjaValue> items;
  if (value.is(Kind::dict)) {
    for (const auto& [key, item] : value.dict().entries) items.push_back(key);
    step(items.size());
    return items;
  }
  const TracedText* text = value.readable();
  if (!text) error("a ", value.type_name(), " cannot be walked through");
  step(text->size());
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = at + char_bytes(text->bytes(), at);
    items.push_back(JinjaValue::of(text->slice(at, end)));
    at = end;
  }
  return items;
}

JinjaValue JinjaInterpreter::attribute(const JinjaValue& object, const std::string& name) {
  need_defined(object);
  if (changes(object, name))
    return JinjaValue::undefined("access to attribute '" + name + "' of '" + object.type_name() +
                                 "' object is unsafe");
  if (const JinjaFilter method = find_jinja_method(object, name))
    return jinja_function(heap_, object, method);
  if (object.is(Kind::dict))
    if (const JinjaValue* value = object.dict().find(name)) return *value;
  if (object.is(Kind::object))
    if (auto value = object.object().attribute(*this, name)) return *value;
  return JinjaValue::undefined(no_attribute(object, name));
}

JinjaValue JinjaInterpreter::item(const JinjaValue& object, const JinjaValue& key) {
  need_defined(object);
  if (object.is(Kind::dict)) {
    const bool hashable = !key.is(Kind::dict) && (!key.is(Kind::list) || key.list().shape == Shape::tuple);
    if (const JinjaValue* value = hashable ? object.dict().find(key) : nullptr) return *value;
  }
  if (object.is(Kind::list) && object.list().shape <= Shape::range && key.is_whole()) {
    const auto& items = object.list().items;
    const std::int64_t index = key.integer() < 0 ? key.integer() + std::int64_t(items.size()) : key.integer();
    if (index >= 0 && index < std::int64_t(items.size())) return items[std::size_t(index)];
  }
  if (object.is(Kind::string) && key.is_whole()) {
    if (const auto at = char_at(object.text().bytes(), key.integer()))
      return make(object.text().slice(at->first, at->second));
  }
  if (key.is(Kind::string) && !object.is(Kind::dict)) return attribute(object, key.text().bytes());
  if (key.is(Kind::string) && find_jinja_method(object, key.text().bytes()))
    return attribute(object, key.text().bytes());
  if (key.is(Kind::string)) return JinjaValue::undefined(no_attribute(object, key.text().bytes()));
  return JinjaValue::undefined(object.type_name() + " object has no element " + repr_of(key).bytes());
}

std::vector<std::int64_t> jinja_slice(const JinjaInterpreter& run, std::int64_t size, const JinjaValue* begin,
                                      const JinjaValue* end, const JinjaValue* step) {
  const auto number = [&](const JinjaValue* value, std::int64_t otherwise) {
    if (!value || value->is(Kind::none)) return otherwise;
    run.need_defined(*value);
    if (!value->is_whole()) run.error("a slice needs whole numbers, found a ", value->type_name());
    return value->integer();
  };
  const std::int64_t by = number(step, 1);
  if (by == 0) run.error("the step of a slice cannot be 0");
  const std::int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto bound = [&](const JinjaValue* value, std::int64_t otherwise) {
    if (!value || value->is(Kind::none)) return otherwise;
    std::int64_t at = number(value, 0);
    if (at < 0) at = at < -size ? -1 : at + size;
    return std::clamp(at, low, high);
  };
  const std::int64_t from = bound(begin, by < 0 ? high : low), to = bound(end, by < 0 ? low : high);
  std::vector<std::int64_t> positions;
  for (std::int64_t at = from; by < 0 ? at > to : at < to;) {
    positions.push_back(at);
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  return positions;
}

// --- calls ----------------------------------------------------------------------------------------------------------

JinjaValue JinjaInterpreter::call(const JinjaValue& callee, const JinjaCall& arguments) {
  need_defined(callee);
  if (!callee.is(Kind::object) || !callee.object().callable())
    error("a ", callee.type_name(), " cannot be called");
  return callee.object().call(*this, arguments);
}

JinjaValue JinjaInterpreter::filter(const std::string& name, const JinjaValue& input,
                                    const JinjaCall& arguments) {
  const JinjaFilter body = find_jinja_filter(name);
  if (!body) error("unknown filter '", name, "'");
  return body(*this, input, arguments);
}

bool JinjaInterpreter::test(const std::string& name, const JinjaValue& input, const JinjaCall& arguments) {
  const JinjaTest body = find_jinja_test(name);
  if (!body) error("unknown test '", name, "'");
  return body(*this, input, arguments);
}

}  // namespace slideway
