// The parsed form of a template: statements and expressions, as the interpreter walks through them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace slideway {

struct JinjaExpr;
using JinjaExprPtr = std::unique_ptr<JinjaExpr>;

struct JinjaArguments {
  std::vector<JinjaExprPtr> positional;
  std::vector<std::pair<std::string, JinjaExprPtr>> named;
  JinjaExprPtr star;         // *rest, or null
  JinjaExprPtr double_star;  // **rest, or null
};

struct JinjaExpr {
  // What lies in parts is said behind each kind.
  enum class Kind : std::uint8_t {
    constant,     // value
    name,         // text
    list,         // the items
    tuple,        // the items
    dict,         // key, value, key, value, …
    conditional,  // condition, then, else (or only two)
    logical_or,   // left, right
    logical_and,  // left, right
    logical_not,  // operand
    comparison,   // first, and one more for each of ops
    binary,       // left, right; ops[0]
    negate,       // operand
    plus,         // operand
    concat,       // all operands
    attribute,    // object; text
    item,         // object, key
    slice,        // object, begin, end, step: null where left out
    call,         // callee; arguments
    filter,       // input, null inside a filter block; text, arguments
    test          // input; text, arguments
  };
  enum class Op : std::uint8_t {
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,  //
    eq,
    ne,
    lt,
    le,
    gt,
    ge,
    in,
    not_in
  };

  Kind kind;
  std::size_t at;  // byte in the source
  int depth = 1;   // of the tree below
  JinjaValue value;
  std::string text;
  std::vector<JinjaExprPtr> parts;
  std::vector<Op> ops;
  JinjaArguments arguments;
};

struct JinjaStmt;
using JinjaBody = std::vector<std::unique_ptr<JinjaStmt>>;

// A macro, or the body of a call block.
struct JinjaMacroDef {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<JinjaExprPtr> defaults;  // of the last parameters
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct JinjaStmt {
  enum class Kind : std::uint8_t {
    data,          // text
    output,        // value
    condition,     // branches, otherwise
    loop,          // target, value, filter (or null), body, otherwise, recursive
    assign,        // target, value
    assign_block,  // target, value (a filter, or null), body
    macro,         // macro, body
    call,          // macro, value (a call), body
    filter,        // value, body
    with,          // assignments, body
    generation,    // body
    break_loop,
    continue_loop
  };

  Kind kind;
  std::size_t at;
  std::string text;
  JinjaExprPtr target, value, filter;
  JinjaBody body, otherwise;
  std::vector<std::pair<JinjaExprPtr, JinjaBody>> branches;
  std::vector<std::pair<JinjaExprPtr, JinjaExprPtr>> assignments;
  JinjaMacroDef macro;
  bool recursive = false;
};

// The text that errors point into.
struct JinjaSource {
  std::string text;                         // newlines as \n, the last one dropped
  std::string where(std::size_t at) const;  // "line 3, column 5"
};

}  // namespace slideway
