// The functions that a template finds without being given them, and how calls bind to parameters.
#include <algorithm>
#include <ctime>

#include "text/jinja_interpreter.h"

namespace slideway {

using Kind = JinjaValue::Kind;
using Shape = JinjaList::Shape;
using Run = JinjaInterpreter;

// --- parameters -----------------------------------------------------------------------------------------------------

JinjaParameters::JinjaParameters(const JinjaInterpreter& run, const JinjaCall& call,
                                 const std::string& function, std::initializer_list<const char*> names,
                                 std::size_t required)
    : run_(run), function_(function), names_(names), given_(names_.size(), nullptr) {
  if (call.positional.size() > names_.size())
    run.error(function, "() takes at most ", names_.size(), " arguments, found ", call.positional.size());
  for (std::size_t i = 0; i < call.positional.size(); ++i) given_[i] = &call.positional[i];
  for (const auto& [name, value] : call.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) run.error(function, "() has no argument '", name, "'");
    const JinjaValue*& place = given_[std::size_t(at - names_.begin())];
    if (place) run.error(function, "(): '", name, "' is given twice");
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!given_[i]) run.error(function, "() needs the argument '", names_[i], "'");
}

std::int64_t JinjaParameters::integer(std::size_t i, std::int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (!value(i).is_whole())
    run_.error(function_, "(): '", names_[i], "' must be a whole number, found a ", value(i).type_name());
  return value(i).integer();
}

TracedText JinjaParameters::text(std::size_t i, const char* otherwise) const {
  if (!has(i)) return TracedText(otherwise);
  if (!value(i).readable())
    run_.error(function_, "(): '", names_[i], "' must be a text, found a ", value(i).type_name());
  return *value(i).readable();
}

// --- objects --------------------------------------------------------------------------------------------------------

namespace {

class Function : public JinjaObject {
 public:
  Function(JinjaValue self, JinjaFilter body) : self_(std::move(self)), body_(body) {}
  std::string type_name() const override { return "function"; }
  bool callable() const override { return true; }
  JinjaValue call(Run& run, const JinjaCall& arguments) override { return body_(run, self_, arguments); }

 private:
  JinjaValue self_;
  JinjaFilter body_;
};

class Namespace : public JinjaObject {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::optional<JinjaValue> attribute(Run&, const std::string& name) override {
    const JinjaValue* value = values.find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  JinjaScope values;
};

class Cycler : public JinjaObject {
 public:
  explicit Cycler(std::vector<JinjaValue> items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<JinjaValue> attribute(Run& run, const std::string& name) override {
    if (name == "current") return items_[at_];
    if (name == "next")
      return jinja_function(run.heap(), JinjaValue::of(this),
                            [](Run&, const JinjaValue& self, const JinjaCall&) {
                              return static_cast<Cycler&>(self.object()).next();
                            });
    if (name == "reset")
      return jinja_function(run.heap(), JinjaValue::of(this),
                            [](Run&, const JinjaValue& self, const JinjaCall&) {
                              static_cast<Cycler&>(self.object()).at_ = 0;
                              return JinjaValue();
                            });
    return std::nullopt;
  }

 private:
  JinjaValue next() {
    const JinjaValue value = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return value;
  }
  std::vector<JinjaValue> items_;
  std::size_t at_ = 0;
};

class Joiner : public JinjaObject {
 public:
  explicit Joiner(TracedText separator) : separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  JinjaValue call(Run& run, const JinjaCall&) override {
    return run.make(std::exchange(used_, true) ? separator_ : TracedText());
  }

 private:
  TracedText separator_;
  bool used_ = false;
};

// --- functions ------------------------------------------------------------------------------------------------------

constexpr std::int64_t kMaxRange = 100'000;  // as jinja2's sandbox

JinjaValue range(Run& run, const JinjaValue&, const JinjaCall& call) {
  const JinjaParameters given(run, call, "range", {"start", "stop", "step"}, 1);
  const std::int64_t start = given.has(1) ? given.integer(0, 0) : 0;
  const std::int64_t stop = given.has(1) ? given.integer(1, 0) : given.integer(0, 0);
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) run.error("range(): the step cannot be 0");
  std::vector<JinjaValue> items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (std::int64_t(items.size()) == kMaxRange) run.error("range(): more than ", kMaxRange, " numbers");
    items.push_back(JinjaValue::of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return run.make(std::move(items), Shape::range);
}

std::vector<std::pair<JinjaValue, JinjaValue>> entries_of(Run& run, const JinjaCall& call,
                                                          const char* function) {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  if (call.positional.size() > 1) run.error(function, "() takes at most one mapping");
  if (!call.positional.empty()) {
    const JinjaValue& from = call.positional[0];
    if (from.is(Kind::dict)) {
      entries = from.dict().entries;
    } else {
      for (const JinjaValue& pair : run.items_of(from)) {
        std::vector<JinjaValue> two = run.items_of(pair);
        if (two.size() != 2) run.error(function, "() needs pairs of a key and a value");
        entries.emplace_back(std::move(two[0]), std::move(two[1]));
      }
    }
  }
  for (const auto& [name, value] : call.named) entries.emplace_back(run.make(TracedText(name)), value);
  run.step(entries.size());
  return entries;
}

JinjaValue make_dict(Run& run, const JinjaValue&, const JinjaCall& call) {
  return JinjaValue::of(run.heap().dict(entries_of(run, call, "dict")));
}

JinjaValue make_namespace(Run& run, const JinjaValue&, const JinjaCall& call) {
  auto* made = run.heap().object<Namespace>();
  for (auto& [key, value] : entries_of(run, call, "namespace"))
    made->values.set(run.text_of(key).bytes(), std::move(value));
  return JinjaValue::of(made);
}

JinjaValue make_cycler(Run& run, const JinjaValue&, const JinjaCall& call) {
  if (call.positional.empty()) run.error("cycler() needs values");
  return JinjaValue::of(run.heap().object<Cycler>(call.positional));
}

JinjaValue make_joiner(Run& run, const JinjaValue&, const JinjaCall& call) {
  const JinjaParameters given(run, call, "joiner", {"sep"});
  return JinjaValue::of(run.heap().object<Joiner>(given.text(0, ", ")));
}

JinjaValue raise_exception(Run& run, const JinjaValue&, const JinjaCall& call) {
  const JinjaParameters given(run, call, "raise_exception", {"message"}, 1);
  run.error("it refuses the messages: ", run.text_of(given.value(0)).bytes());
}

JinjaValue strftime_now(Run& run, const JinjaValue&, const JinjaCall& call) {
  const JinjaParameters given(run, call, "strftime_now", {"format"}, 1);
  const std::time_t now = run.now();
  std::tm parts{};
  localtime_r(&now, &parts);
  const std::string format =
      given.text(0).bytes() + "|";  // so that an empty result is told from a full buffer
  if (format.size() > 1000) run.error("strftime_now(): the format is too long");
  std::string text(8000, 0);
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  if (text.empty()) run.error("strftime_now(): the text is too long");
  text.pop_back();
  if (!is_utf8(text)) run.error("strftime_now(): the format gives no UTF-8");
  return run.make(TracedText(std::move(text)));
}

}  // namespace

JinjaValue jinja_function(JinjaHeap& heap, JinjaValue self, JinjaFilter body) {
  return JinjaValue::of(heap.object<Function>(std::move(self), body));
}

void set_jinja_attribute(Run& run, const JinjaValue& object, const std::string& name, JinjaValue value) {
  auto* target = object.is(Kind::object) ? dynamic_cast<Namespace*>(&object.object()) : nullptr;
  if (!target) run.error("'", name, "' can be set on a namespace only, not on a ", object.type_name());
  target->values.set(name, std::move(value));
}

void add_jinja_functions(Run& run) {
  static constexpr std::pair<const char*, JinjaFilter> kFunctions[] = {{"range", range},
                                                                       {"dict", make_dict},
                                                                       {"namespace", make_namespace},
                                                                       {"cycler", make_cycler},
                                                                       {"joiner", make_joiner},
                                                                       {"raise_exception", raise_exception},
                                                                       {"strftime_now", strftime_now}};
  for (const auto& [name, body] : kFunctions)
    run.set_variable(name, jinja_function(run.heap(), JinjaValue(), body));
}

}  // namespace slideway
