// JinjaInterpreter: runs a parsed template over values. What jinja2 and Python define, in the form that chat templates
// are given by transformers: an immutable sandbox, nothing escaped.
//
// Every step and every byte made counts against limits, since a template comes from whoever made the model and its
// data from whoever asks. Filters, tests, methods and functions live in their own files and use this class's public
// half.
//
// Threads  one at a time
// Errors   invalid_input with line and column: what jinja2 would raise; limits passed
#pragma once

#include <ctime>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/jinja_syntax.h"
#include "text/jinja_value.h"

namespace slideway {

struct JinjaLimits {
  std::int64_t steps = 10'000'000;  // expressions and statements; a list's item and 64 bytes of text are one
  std::size_t text_bytes = 64 * 1024 * 1024;  // of the output and of any one string
};

class JinjaInterpreter;

// The arguments of a call.
struct JinjaCall {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// A call's arguments, by the names of the parameters they are for. Surplus and unknown ones are errors.
class JinjaParameters {
 public:
  JinjaParameters(const JinjaInterpreter& run, const JinjaCall& call, const std::string& function,
                  std::initializer_list<const char*> names, std::size_t required = 0);
  bool has(std::size_t i) const { return given_[i] != nullptr; }
  const JinjaValue& value(std::size_t i) const { return *given_[i]; }
  JinjaValue value(std::size_t i, JinjaValue otherwise) const {
    return has(i) ? value(i) : std::move(otherwise);
  }
  bool truth(std::size_t i, bool otherwise) const { return has(i) ? value(i).truth() : otherwise; }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  TracedText text(std::size_t i, const char* otherwise = "") const;

 private:
  const JinjaInterpreter& run_;
  std::string function_;
  std::vector<const char*> names_;
  std::vector<const JinjaValue*> given_;
};

struct JinjaScope {
  JinjaScope* parent = nullptr;
  std::vector<std::pair<std::string, JinjaValue>> variables;
  bool captured = false;                                  // by a macro: it must outlive its block
  const JinjaValue* find(const std::string& name) const;  // here only
  void set(const std::string& name, JinjaValue value);
};

class JinjaInterpreter {
 public:
  using Clock = std::function<std::time_t()>;
  enum class Flow : std::uint8_t { next, break_loop, continue_loop };

  JinjaInterpreter(const JinjaSource& source, JinjaHeap& heap, const JinjaLimits& limits, Clock clock);

  void set_variable(const std::string& name, JinjaValue value) { globals_.set(name, std::move(value)); }
  TracedText render(const JinjaBody& body);

  // --- for filters, tests, methods and functions
  JinjaHeap& heap() { return heap_; }
  std::time_t now() const { return clock_(); }
  void step(std::size_t work = 1);
  void check_bytes(std::size_t bytes) const;  // of a string about to be made
  JinjaValue make(TracedText text);
  JinjaValue make(std::vector<JinjaValue> items, JinjaList::Shape shape = JinjaList::Shape::list);
  // What a for loop would see. Iterators are used up by it.
  std::vector<JinjaValue> items_of(const JinjaValue& value);
  TracedText text_of(const JinjaValue& value);
  JinjaValue attribute(const JinjaValue& object, const std::string& name);
  JinjaValue item(const JinjaValue& object, const JinjaValue& key);
  JinjaValue call(const JinjaValue& callee, const JinjaCall& arguments);
  JinjaValue filter(const std::string& name, const JinjaValue& input, const JinjaCall& arguments);
  bool test(const std::string& name, const JinjaValue& input, const JinjaCall& arguments);
  bool contains(const JinjaValue& container, const JinjaValue& value);
  JinjaValue binary(JinjaExpr::Op op, const JinjaValue& left, const JinjaValue& right);
  bool ordered(JinjaExpr::Op op, const JinjaValue& left, const JinjaValue& right);
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    fail(ErrorKind::invalid_input, "chat template, ", source_.where(at_), ": ", parts...);
  }
  // An undefined value is an error here, as in most operations.
  void need_defined(const JinjaValue& value) const {
    if (value.is(JinjaValue::Kind::undefined)) error(value.why());
  }

 private:
  friend class JinjaMacro;
  friend class JinjaLoop;

  JinjaValue eval(const JinjaExpr& expr);
  JinjaValue eval_name(const std::string& name);
  JinjaValue eval_comparison(const JinjaExpr& expr);
  JinjaValue eval_slice(const JinjaExpr& expr);
  JinjaValue eval_call(const JinjaExpr& expr, const JinjaValue* caller = nullptr);
  JinjaValue eval_dict(const JinjaExpr& expr);
  JinjaValue eval_concat(const JinjaExpr& expr);
  JinjaValue eval_filter(const JinjaExpr& expr,
                         const JinjaValue* block);  // block: the input of a filter block
  JinjaCall eval_arguments(const JinjaArguments& arguments);

  Flow run(const JinjaBody& body);
  Flow run(const JinjaStmt& stmt);
  Flow run_condition(const JinjaStmt& stmt);
  Flow run_loop(const JinjaStmt& stmt, std::vector<JinjaValue> items, int depth);
  Flow run_generation(const JinjaStmt& stmt);
  void run_with(const JinjaStmt& stmt);
  void run_call_block(const JinjaStmt& stmt);
  void assign(const JinjaExpr& target, const JinjaValue& value);
  void output(const TracedText& text);
  TracedText captured(const JinjaBody& body);  // its output, in a scope of its own
  JinjaValue call_macro(const JinjaStmt& stmt, JinjaScope* scope, const JinjaCall& arguments);
  JinjaScope* new_scope(JinjaScope* parent);
  JinjaValue make_macro(const JinjaStmt& stmt);

  const JinjaSource& source_;
  JinjaHeap& heap_;
  JinjaLimits limits_;
  Clock clock_;
  std::size_t at_ = 0;  // where in the source the running expression is
  std::int64_t steps_ = 0;
  int depth_ = 0;  // of the recursion of this class
  bool in_generation_ = false;
  TracedText* out_ = nullptr;
  JinjaScope globals_;
  JinjaScope* scope_ = &globals_;
  std::vector<std::unique_ptr<JinjaScope>> scopes_;
};

// The tables that other files fill.
using JinjaFilter = JinjaValue (*)(JinjaInterpreter& run, const JinjaValue& input,
                                   const JinjaCall& arguments);
using JinjaTest = bool (*)(JinjaInterpreter& run, const JinjaValue& input, const JinjaCall& arguments);
JinjaFilter find_jinja_filter(const std::string& name);  // null: no such filter
JinjaTest find_jinja_test(const std::string& name);
// A method of strings, lists or mappings; null where the value has none of that name.
JinjaFilter find_jinja_method(const JinjaValue& value, const std::string& name);
void add_jinja_functions(JinjaInterpreter& run);  // range, namespace, raise_exception, …
// A method or function as a value.
JinjaValue jinja_function(JinjaHeap& heap, JinjaValue self, JinjaFilter body);
// A namespace's attribute is set; invalid_input where the object is none.
void set_jinja_attribute(JinjaInterpreter& run, const JinjaValue& object, const std::string& name,
                         JinjaValue value);
// Python's slice(begin, end, step).indices(size), as the list of positions.
std::vector<std::int64_t> jinja_slice(const JinjaInterpreter& run, std::int64_t size, const JinjaValue* begin,
                                      const JinjaValue* end, const JinjaValue* step);

}  // namespace slideway
