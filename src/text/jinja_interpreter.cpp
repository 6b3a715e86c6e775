#include "text/jinja_interpreter.h"

#include <algorithm>

#include "text/jinja_loop.h"

namespace slideway {

using Kind = JinjaExpr::Kind;
using ValueKind = JinjaValue::Kind;
using Flow = JinjaInterpreter::Flow;

namespace {

constexpr int kMaxRecursion = 400;  // of eval and run together; macros that call themselves end here

// Restores a variable when a block ends, also by an exception.
template <class T>
class Restored {
 public:
  Restored(T& variable, T value) : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() { variable_ = before_; }

 private:
  T& variable_;
  T before_;
};

}  // namespace

const JinjaValue* JinjaScope::find(const std::string& name) const {
  for (const auto& [key, value] : variables)
    if (key == name) return &value;
  return nullptr;
}

void JinjaScope::set(const std::string& name, JinjaValue value) {
  for (auto& [key, old] : variables)
    if (key == name) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

JinjaInterpreter::JinjaInterpreter(const JinjaSource& source, JinjaHeap& heap, const JinjaLimits& limits,
                                   Clock clock)
    : source_(source), heap_(heap), limits_(limits), clock_(std::move(clock)) {
  add_jinja_functions(*this);
}

TracedText JinjaInterpreter::render(const JinjaBody& body) {
  TracedText text;
  Restored out(out_, &text);
  Restored scope(scope_, new_scope(&globals_));
  run(body);
  return text;
}

void JinjaInterpreter::step(std::size_t work) {
  steps_ += std::int64_t(work);
  if (steps_ > limits_.steps) error("the template does not end within ", limits_.steps, " steps");
}

void JinjaInterpreter::check_bytes(std::size_t bytes) const {
  if (bytes > limits_.text_bytes) error("a text passes ", limits_.text_bytes, " bytes");
}

JinjaValue JinjaInterpreter::make(TracedText text) {
  check_bytes(text.size());
  step(text.size() / 64);
  return JinjaValue::of(std::move(text));
}

JinjaValue JinjaInterpreter::make(std::vector<JinjaValue> items, JinjaList::Shape shape) {
  step(items.size());
  return JinjaValue::of(heap_.list(std::move(items), shape));
}

TracedText JinjaInterpreter::text_of(const JinjaValue& value) {
  TracedText text = slideway::text_of(value);
  check_bytes(text.size());
  step(text.size() / 64);
  return text;
}

JinjaScope* JinjaInterpreter::new_scope(JinjaScope* parent) {
  scopes_.push_back(std::make_unique<JinjaScope>());
  scopes_.back()->parent = parent;
  return scopes_.back().get();
}

// --- expressions ------------------------------------------------------------------------------------------------

JinjaValue JinjaInterpreter::eval(const JinjaExpr& expr) {
  step();
  Restored depth(depth_, depth_ + 1);
  if (depth_ > kMaxRecursion) error("the template recurses too deep");
  at_ = expr.at;
  switch (expr.kind) {
    case Kind::constant:
      return expr.value;
    case Kind::name:
      return eval_name(expr.text);
    case Kind::list:
    case Kind::tuple: {
      std::vector<JinjaValue> items;
      for (const auto& part : expr.parts) items.push_back(eval(*part));
      return make(std::move(items),
                  expr.kind == Kind::list ? JinjaList::Shape::list : JinjaList::Shape::tuple);
    }
    case Kind::dict:
      return eval_dict(expr);
    case Kind::conditional:
      if (eval(*expr.parts[0]).truth()) return eval(*expr.parts[1]);
      if (expr.parts[2]) return eval(*expr.parts[2]);
      return JinjaValue::undefined("the inline if-expression was false and has no else");
    case Kind::logical_or: {
      JinjaValue left = eval(*expr.parts[0]);
      return left.truth() ? left : eval(*expr.parts[1]);
    }
    case Kind::logical_and: {
      JinjaValue left = eval(*expr.parts[0]);
      return left.truth() ? eval(*expr.parts[1]) : left;
    }
    case Kind::logical_not:
      return JinjaValue::of(!eval(*expr.parts[0]).truth());
    case Kind::comparison:
      return eval_comparison(expr);
    case Kind::binary: {
      const JinjaValue left = eval(*expr.parts[0]);
      const JinjaValue right = eval(*expr.parts[1]);
      at_ = expr.at;
      return binary(expr.ops[0], left, right);
    }
    case Kind::negate:
    case Kind::plus: {
      const JinjaValue operand = eval(*expr.parts[0]);
      need_defined(operand);
      if (!operand.is_number()) error("a ", operand.type_name(), " has no sign");
      const std::int64_t sign = expr.kind == Kind::negate ? -1 : 1;
      return binary(JinjaExpr::Op::multiply, operand, JinjaValue::of(sign));
    }
    case Kind::concat:
      return eval_concat(expr);
    case Kind::attribute: {
      const JinjaValue object = eval(*expr.parts[0]);
      at_ = expr.at;
      return attribute(object, expr.text);
    }
    case Kind::item: {
      const JinjaValue object = eval(*expr.parts[0]);
      const JinjaValue key = eval(*expr.parts[1]);
      at_ = expr.at;
      return item(object, key);
    }
    case Kind::slice:
      return eval_slice(expr);
    case Kind::call:
      return eval_call(expr);
    case Kind::filter:
      return eval_filter(expr, nullptr);
    case Kind::test: {
      const JinjaValue input = eval(*expr.parts[0]);
      const JinjaCall arguments = eval_arguments(expr.arguments);
      at_ = expr.at;
      return JinjaValue::of(test(expr.text, input, arguments));
    }
  }
  error("an expression of unknown kind");
}

JinjaValue JinjaInterpreter::eval_name(const std::string& name) {
  for (const JinjaScope* scope = scope_; scope; scope = scope->parent)
    if (const JinjaValue* value = scope->find(name)) return *value;
  return JinjaValue::undefined("'" + name + "' is undefined");
}

JinjaValue JinjaInterpreter::eval_dict(const JinjaExpr& expr) {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
    JinjaValue key = eval(*expr.parts[i]);
    entries.emplace_back(std::move(key), eval(*expr.parts[i + 1]));
  }
  step(entries.size());
  return JinjaValue::of(heap_.dict(std::move(entries)));
}

JinjaValue JinjaInterpreter::eval_comparison(const JinjaExpr& expr) {
  JinjaValue left = eval(*expr.parts[0]);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    JinjaValue right = eval(*expr.parts[i + 1]);
    at_ = expr.at;
    if (!ordered(expr.ops[i], left, right)) return JinjaValue::of(false);
    left = std::move(right);
  }
  return JinjaValue::of(true);
}

JinjaValue JinjaInterpreter::eval_concat(const JinjaExpr& expr) {
  TracedText text;
  for (const auto& part : expr.parts) {
    text.append(text_of(eval(*part)));
    check_bytes(text.size());
  }
  return make(std::move(text));
}

JinjaValue JinjaInterpreter::eval_slice(const JinjaExpr& expr) {
  const JinjaValue object = eval(*expr.parts[0]);
  JinjaValue bounds[3];
  const JinjaValue* given[3] = {};
  for (int i = 0; i < 3; ++i)
    if (expr.parts[i + 1]) {
      bounds[i] = eval(*expr.parts[i + 1]);
      given[i] = &bounds[i];
    }
  at_ = expr.at;
  need_defined(object);
  if (const TracedText* text = object.readable()) {
    std::vector<std::size_t> begins;  // of every character
    for (std::size_t at = 0; at < text->size(); at += char_bytes(text->bytes(), at)) begins.push_back(at);
    begins.push_back(text->size());
    TracedText out;
    for (const std::int64_t i :
         jinja_slice(*this, std::int64_t(begins.size()) - 1, given[0], given[1], given[2]))
      out.append(*text, begins[std::size_t(i)], begins[std::size_t(i) + 1]);
    return make(std::move(out));
  }
  if (!object.is(ValueKind::list) || object.list().shape > JinjaList::Shape::range)
    error("a ", object.type_name(), " has no slices");
  std::vector<JinjaValue> items;
  const auto& all = object.list().items;
  for (const std::int64_t i : jinja_slice(*this, std::int64_t(all.size()), given[0], given[1], given[2]))
    items.push_back(all[std::size_t(i)]);
  return make(std::move(items), object.list().shape);
}

JinjaCall JinjaInterpreter::eval_arguments(const JinjaArguments& arguments) {
  JinjaCall out;
  for (const auto& argument : arguments.positional) out.positional.push_back(eval(*argument));
  if (arguments.star)
    for (JinjaValue& rest : items_of(eval(*arguments.star))) out.positional.push_back(std::move(rest));
  for (const auto& [name, argument] : arguments.named) out.named.emplace_back(name, eval(*argument));
  if (arguments.double_star) {
    const JinjaValue rest = eval(*arguments.double_star);
    if (!rest.is(ValueKind::dict)) error("** needs a mapping, found a ", rest.type_name());
    for (const auto& [name, value] : rest.dict().entries)
      out.named.emplace_back(text_of(name).bytes(), value);
  }
  for (std::size_t i = 0; i < out.named.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (out.named[i].first == out.named[j].first)
        error("the argument '", out.named[i].first, "' is given twice");
  return out;
}

JinjaValue JinjaInterpreter::eval_call(const JinjaExpr& expr, const JinjaValue* caller) {
  const JinjaExpr& callee = *expr.parts[0];
  JinjaValue self, function;
  JinjaFilter method = nullptr;  // found without making a value of it: nearly every call is one
  if (callee.kind == Kind::attribute) {
    self = eval(*callee.parts[0]);
    method = find_jinja_method(self, callee.text);
    at_ = callee.at;
    if (!method) function = attribute(self, callee.text);
  } else {
    function = eval(callee);
  }
  JinjaCall arguments = eval_arguments(expr.arguments);
  if (caller) arguments.named.emplace_back("caller", *caller);
  at_ = expr.at;
  return method ? method(*this, self, arguments) : call(function, arguments);
}

JinjaValue JinjaInterpreter::eval_filter(const JinjaExpr& expr, const JinjaValue* block) {
  JinjaValue input;
  if (!expr.parts[0])
    input = *block;
  else if (block)
    input = eval_filter(*expr.parts[0], block);  // a chain of filters on a block's text
  else
    input = eval(*expr.parts[0]);
  const JinjaCall arguments = eval_arguments(expr.arguments);
  at_ = expr.at;
  return filter(expr.text, input, arguments);
}

// --- statements ---------------------------------------------------------------------------------------------------

Flow JinjaInterpreter::run(const JinjaBody& body) {
  for (const auto& stmt : body)
    if (const Flow flow = run(*stmt); flow != Flow::next) return flow;
  return Flow::next;
}

Flow JinjaInterpreter::run(const JinjaStmt& stmt) {
  step();
  Restored depth(depth_, depth_ + 1);
  if (depth_ > kMaxRecursion) error("the template recurses too deep");
  at_ = stmt.at;
  switch (stmt.kind) {
    case JinjaStmt::Kind::data:
      output(TracedText(stmt.text));
      break;
    case JinjaStmt::Kind::output:
      output(text_of(eval(*stmt.value)));
      break;
    case JinjaStmt::Kind::condition:
      return run_condition(stmt);
    case JinjaStmt::Kind::loop:
      return run_loop(stmt, items_of(eval(*stmt.value)), 0);
    case JinjaStmt::Kind::assign:
      assign(*stmt.target, eval(*stmt.value));
      break;
    case JinjaStmt::Kind::assign_block: {
      JinjaValue text = make(captured(stmt.body));
      assign(*stmt.target, stmt.value ? eval_filter(*stmt.value, &text) : text);
      break;
    }
    case JinjaStmt::Kind::macro:
      scope_->set(stmt.macro.name, make_macro(stmt));
      break;
    case JinjaStmt::Kind::call:
      run_call_block(stmt);
      break;
    case JinjaStmt::Kind::filter: {
      const JinjaValue text = make(captured(stmt.body));
      output(text_of(eval_filter(*stmt.value, &text)));
      break;
    }
    case JinjaStmt::Kind::with:
      run_with(stmt);
      break;
    case JinjaStmt::Kind::generation:
      return run_generation(stmt);
    case JinjaStmt::Kind::break_loop:
      return Flow::break_loop;
    case JinjaStmt::Kind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

void JinjaInterpreter::output(const TracedText& text) {
  check_bytes(out_->size() + text.size());
  if (!in_generation_) return out_->append(text);
  TracedText trained = text;
  trained.mark_trained();
  out_->append(trained);
}

TracedText JinjaInterpreter::captured(const JinjaBody& body) {
  TracedText text;
  Restored out(out_, &text);
  Restored scope(scope_, new_scope(scope_));
  run(body);
  return text;
}

Flow JinjaInterpreter::run_condition(const JinjaStmt& stmt) {
  for (const auto& [test, then] : stmt.branches)
    if (eval(*test).truth()) return run(then);
  return run(stmt.otherwise);
}

Flow JinjaInterpreter::run_loop(const JinjaStmt& stmt, std::vector<JinjaValue> items, int depth) {
  JinjaScope* const outside = scope_;
  JinjaScope* const testing = stmt.filter ? new_scope(outside) : nullptr;
  const auto passes = [this, &stmt, testing](const JinjaValue& item) {
    if (!testing) return true;
    testing->variables.clear();
    Restored scope(scope_, testing);
    assign(*stmt.target, item);
    return eval(*stmt.filter).truth();
  };
  JinjaLoop* loop = heap_.object<JinjaLoop>(stmt, outside, std::move(items), passes, depth);
  JinjaScope* inside = new_scope(outside);
  bool any = false;
  while (loop->advance(*this)) {
    any = true;
    if (inside->captured) inside = new_scope(outside);
    inside->variables.clear();
    Restored scope(scope_, inside);
    scope_->set("loop", JinjaValue::of(loop));
    assign(*stmt.target, loop->current());
    if (run(stmt.body) == Flow::break_loop) break;
  }
  loop->finish();
  if (!any) {
    Restored scope(scope_, new_scope(outside));
    return run(stmt.otherwise);
  }
  return Flow::next;
}

Flow JinjaInterpreter::run_generation(const JinjaStmt& stmt) {
  Restored scope(scope_, new_scope(scope_));
  Restored generation(in_generation_, true);
  return run(stmt.body);
}

void JinjaInterpreter::run_with(const JinjaStmt& stmt) {
  JinjaScope* inside = new_scope(scope_);
  std::vector<JinjaValue> values;  // none sees the others
  for (const auto& [target, value] : stmt.assignments) values.push_back(eval(*value));
  Restored scope(scope_, inside);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*stmt.assignments[i].first, values[i]);
  run(stmt.body);
}

void JinjaInterpreter::assign(const JinjaExpr& target, const JinjaValue& value) {
  at_ = target.at;
  if (target.kind == Kind::name) return scope_->set(target.text, value);
  if (target.kind == Kind::attribute)
    return set_jinja_attribute(*this, eval(*target.parts[0]), target.text, value);
  const std::vector<JinjaValue> items = items_of(value);
  if (items.size() != target.parts.size())
    error("cannot unpack ", items.size(), " values into ", target.parts.size(), " names");
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

// --- macros ---------------------------------------------------------------------------------------------------------

class JinjaMacro : public JinjaObject {
 public:
  JinjaMacro(const JinjaStmt& stmt, JinjaScope* scope) : stmt_(stmt), scope_(scope) {}
  std::string type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  JinjaValue call(JinjaInterpreter& run, const JinjaCall& arguments) override {
    return run.call_macro(stmt_, scope_, arguments);
  }
  std::optional<JinjaValue> attribute(JinjaInterpreter& run, const std::string& name) override {
    if (name != "name") return std::nullopt;
    return run.make(TracedText(stmt_.macro.name));
  }

 private:
  const JinjaStmt& stmt_;
  JinjaScope* scope_;
};

JinjaValue JinjaInterpreter::make_macro(const JinjaStmt& stmt) {
  for (JinjaScope* scope = scope_; scope && !scope->captured; scope = scope->parent) scope->captured = true;
  return JinjaValue::of(heap_.object<JinjaMacro>(stmt, scope_));
}

void JinjaInterpreter::run_call_block(const JinjaStmt& stmt) {
  const JinjaValue caller = make_macro(stmt);
  output(text_of(eval_call(*stmt.value, &caller)));
}

JinjaValue JinjaInterpreter::call_macro(const JinjaStmt& stmt, JinjaScope* outside,
                                        const JinjaCall& arguments) {
  const JinjaMacroDef& macro = stmt.macro;
  JinjaScope* inside = new_scope(outside);
  const std::size_t count = macro.parameters.size();
  auto named = arguments.named;
  const auto take_named = [&](const std::string& name) -> std::optional<JinjaValue> {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
    if (found == named.end()) return std::nullopt;
    JinjaValue value = found->second;
    named.erase(found);
    return value;
  };
  TracedText text;
  Restored out(out_, &text);
  Restored scope(scope_, inside);
  Restored generation(in_generation_, false);  // what it returns is marked where it is put out
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < count; ++i) {
    if (i < arguments.positional.size())
      inside->set(macro.parameters[i], arguments.positional[i]);
    else if (auto value = take_named(macro.parameters[i]))
      inside->set(macro.parameters[i], *value);
    else
      missing.push_back(i);
  }
  const bool own_caller =
      std::find(macro.parameters.begin(), macro.parameters.end(), "caller") != macro.parameters.end();
  if (macro.uses_caller && !own_caller)
    inside->set("caller", take_named("caller").value_or(JinjaValue::undefined("no caller is defined")));
  if (macro.uses_kwargs) {
    std::vector<std::pair<JinjaValue, JinjaValue>> rest;
    for (auto& [name, value] : named) rest.emplace_back(make(TracedText(name)), value);
    inside->set("kwargs", JinjaValue::of(heap_.dict(std::move(rest))));
  } else if (!named.empty()) {
    error("the macro '", macro.name, "' takes no argument '", named.front().first, "'");
  }
  const auto begin =
      arguments.positional.begin() + std::ptrdiff_t(std::min(count, arguments.positional.size()));
  if (macro.uses_varargs)
    inside->set("varargs", make({begin, arguments.positional.end()}, JinjaList::Shape::tuple));
  else if (begin != arguments.positional.end())
    error("the macro '", macro.name, "' takes not more than ", count, " arguments");
  for (const std::size_t i : missing) {  // a default may use the parameters before it
    const std::size_t first_default = count - macro.defaults.size();
    inside->set(macro.parameters[i],
                i < first_default
                    ? JinjaValue::undefined("the parameter '" + macro.parameters[i] + "' was not given")
                    : eval(*macro.defaults[i - first_default]));
  }
  run(stmt.body);
  return make(std::move(text));
}

}  // namespace slideway
