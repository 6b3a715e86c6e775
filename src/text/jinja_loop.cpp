#include "text/jinja_loop.h"

namespace slideway {
namespace {

JinjaValue call_cycle(JinjaInterpreter& run, const JinjaValue& self, const JinjaCall& arguments) {
  return static_cast<JinjaLoop&>(self.object()).cycle(run, arguments);
}

JinjaValue call_changed(JinjaInterpreter& run, const JinjaValue& self, const JinjaCall& arguments) {
  return static_cast<JinjaLoop&>(self.object()).changed(run, arguments);
}

}  // namespace

bool JinjaLoop::has(std::size_t index) {
  while (passed_ <= index && next_ < items_.size()) {
    const std::size_t at = next_++;
    if (passes_ && !passes_(items_[at])) continue;
    if (at != passed_) items_[passed_] = std::move(items_[at]);
    ++passed_;
  }
  return passed_ > index;
}

bool JinjaLoop::advance(JinjaInterpreter& run) {
  run.step();
  if (!has(std::size_t(index_ + 1))) return false;
  ++index_;
  return true;
}

std::int64_t JinjaLoop::length() {
  has(items_.size());
  return std::int64_t(passed_);
}

JinjaValue JinjaLoop::cycle(JinjaInterpreter& run, const JinjaCall& arguments) const {
  if (arguments.positional.empty()) run.error("loop.cycle() needs values");
  return arguments.positional[std::size_t(index_) % arguments.positional.size()];
}

JinjaValue JinjaLoop::changed(JinjaInterpreter& run, const JinjaCall& arguments) {
  const JinjaValue now = run.make(arguments.positional, JinjaList::Shape::tuple);
  const bool differs = !last_ || !equal(*last_, now);
  last_ = now;
  return JinjaValue::of(differs);
}

JinjaValue JinjaLoop::call(JinjaInterpreter& run, const JinjaCall& arguments) {
  if (!stmt_.recursive) run.error("the loop must be marked 'recursive' to be called");
  const JinjaParameters given(run, arguments, "loop", {"iterable"}, 1);
  TracedText text;
  TracedText* const out = std::exchange(run.out_, &text);
  JinjaScope* const scope = std::exchange(run.scope_, outside_);
  run.run_loop(stmt_, run.items_of(given.value(0)), depth_ + 1);
  run.out_ = out;
  run.scope_ = scope;
  return run.make(std::move(text));
}

std::optional<JinjaValue> JinjaLoop::attribute(JinjaInterpreter& run, const std::string& name) {
  const auto number = [](std::int64_t value) { return JinjaValue::of(value); };
  if (name == "index0") return number(index_);
  if (name == "index") return number(index_ + 1);
  if (name == "first") return JinjaValue::of(index_ == 0);
  if (name == "last") return JinjaValue::of(!has(std::size_t(index_ + 1)));
  if (name == "length") return number(length());
  if (name == "revindex") return number(length() - index_);
  if (name == "revindex0") return number(length() - index_ - 1);
  if (name == "depth") return number(depth_ + 1);
  if (name == "depth0") return number(depth_);
  if (name == "previtem")
    return index_ > 0 ? items_[std::size_t(index_ - 1)] : JinjaValue::undefined("there is no previous item");
  if (name == "nextitem")
    return has(std::size_t(index_ + 1)) ? items_[std::size_t(index_ + 1)]
                                        : JinjaValue::undefined("there is no next item");
  if (name == "cycle") return jinja_function(run.heap(), JinjaValue::of(this), call_cycle);
  if (name == "changed") return jinja_function(run.heap(), JinjaValue::of(this), call_changed);
  return std::nullopt;
}

}  // namespace slideway
