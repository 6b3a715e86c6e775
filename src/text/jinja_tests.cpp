// Tests: what may follow "is".
#include <algorithm>
#include <unordered_map>

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace slideway {

using Kind = JinjaValue::Kind;
using Op = JinjaExpr::Op;
using Run = JinjaInterpreter;
using Shape = JinjaList::Shape;

namespace {

// A test of the value alone.
template <auto plain>
bool alone(Run& run, const JinjaValue& value, const JinjaCall& call) {
  const JinjaParameters none(run, call, "a test", {});
  return plain(value);
}

template <Op op>
bool ordered(Run& run, const JinjaValue& value, const JinjaCall& call) {
  const JinjaParameters given(run, call, "a comparison", {"other"}, 1);
  return run.ordered(op, value, given.value(0));
}

bool divisible(Run& run, const JinjaValue& value, const JinjaCall& call) {
  const JinjaParameters given(run, call, "divisibleby", {"num"}, 1);
  return equal(run.binary(Op::modulo, value, given.value(0)), JinjaValue::of(std::int64_t(0)));
}

template <int rest>
bool parity(Run& run, const JinjaValue& value, const JinjaCall&) {
  const JinjaValue two = JinjaValue::of(std::int64_t(2));
  return equal(run.binary(Op::modulo, value, two), JinjaValue::of(std::int64_t(rest)));
}

bool same_as(Run& run, const JinjaValue& value, const JinjaCall& call) {
  const JinjaParameters given(run, call, "sameas", {"other"}, 1);
  return value.same_as(given.value(0));
}

bool cased(Run& run, const JinjaValue& value, const char* method) {
  const JinjaValue text = run.make(run.text_of(value));
  return find_jinja_method(text, method)(run, text, {}).truth();
}
bool is_lower(Run& run, const JinjaValue& value, const JinjaCall&) {
  return cased(run, value, "islower");
}
bool is_upper(Run& run, const JinjaValue& value, const JinjaCall&) {
  return cased(run, value, "isupper");
}

bool is_filter(Run& run, const JinjaValue& value, const JinjaCall&) {
  return find_jinja_filter(run.text_of(value).bytes()) != nullptr;
}
bool is_test(Run& run, const JinjaValue& value, const JinjaCall&) {
  return find_jinja_test(run.text_of(value).bytes()) != nullptr;
}

bool is_sequence(const JinjaValue& value) {
  if (value.is(Kind::list)) return value.list().shape <= Shape::range;
  return value.is(Kind::string) || value.is(Kind::dict) || value.is(Kind::undefined);
}
bool is_callable(const JinjaValue& value) {  // of an undefined value Python finds that it might be
  return value.is(Kind::undefined) || (value.is(Kind::object) && value.object().callable());
}
bool is_iterable(const JinjaValue& value) {
  return is_sequence(value) || value.is(Kind::list) ||
         (value.is(Kind::object) && value.type_name() == "LoopContext");
}

const std::unordered_map<std::string, JinjaTest>& tests() {
  static const std::unordered_map<std::string, JinjaTest> kTable = {
      {"defined", alone<[](const JinjaValue& v) { return !v.is(Kind::undefined); }>},
      {"undefined", alone<[](const JinjaValue& v) { return v.is(Kind::undefined); }>},
      {"none", alone<[](const JinjaValue& v) { return v.is(Kind::none); }>},
      {"boolean", alone<[](const JinjaValue& v) { return v.is(Kind::boolean); }>},
      {"true", alone<[](const JinjaValue& v) { return v.is(Kind::boolean) && v.boolean(); }>},
      {"false", alone<[](const JinjaValue& v) { return v.is(Kind::boolean) && !v.boolean(); }>},
      {"integer", alone<[](const JinjaValue& v) { return v.is(Kind::integer); }>},
      {"float", alone<[](const JinjaValue& v) { return v.is(Kind::real); }>},
      {"number", alone<[](const JinjaValue& v) { return v.is_number(); }>},
      {"string", alone<[](const JinjaValue& v) { return v.is(Kind::string); }>},
      {"mapping", alone<[](const JinjaValue& v) { return v.is(Kind::dict); }>},
      {"sequence", alone<is_sequence>},
      {"iterable", alone<is_iterable>},
      {"callable", alone<is_callable>},
      {"escaped", alone<[](const JinjaValue&) { return false; }>},
      {"lower", is_lower},
      {"upper", is_upper},
      {"odd", parity<1>},
      {"even", parity<0>},
      {"divisibleby", divisible},
      {"sameas", same_as},
      {"filter", is_filter},
      {"test", is_test},
      {"in", ordered<Op::in>},
      {"eq", ordered<Op::eq>},
      {"equalto", ordered<Op::eq>},
      {"==", ordered<Op::eq>},
      {"ne", ordered<Op::ne>},
      {"!=", ordered<Op::ne>},
      {"lt", ordered<Op::lt>},
      {"lessthan", ordered<Op::lt>},
      {"<", ordered<Op::lt>},
      {"le", ordered<Op::le>},
      {"<=", ordered<Op::le>},
      {"gt", ordered<Op::gt>},
      {"greaterthan", ordered<Op::gt>},
      {">", ordered<Op::gt>},
      {"ge", ordered<Op::ge>},
      {">=", ordered<Op::ge>},
  };
  return kTable;
}

}  // namespace

JinjaTest find_jinja_test(const std::string& name) {
  const auto found = tests().find(name);
  return found == tests().end() ? nullptr : found->second;
}

bool is_jinja_test(const std::string& name) {
  return find_jinja_test(name) != nullptr;
}

}  // namespace slideway
