// The expression half of the template grammar: a recursive descent over the tokens, one function a level of binding.
// The statement half (jinja_parser.cpp) builds on it.
//
// Errors   corrupt, with line and column
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_lexer.h"
#include "text/jinja_syntax.h"

namespace slideway {

class JinjaExpressions {
 protected:
  using Ptr = JinjaExprPtr;
  JinjaExpressions(const JinjaSource& source, std::vector<JinjaToken> tokens)
      : source_(source), tokens_(std::move(tokens)) {}

  // Tokens.
  const JinjaToken& current() const { return tokens_[next_]; }
  JinjaToken take();
  bool at_op(std::string_view op) const {
    return current().kind == JinjaToken::Kind::op && current().text == op;
  }
  bool at_name(std::string_view name) const {
    return current().kind == JinjaToken::Kind::name && current().text == name;
  }
  bool take_op(std::string_view op);
  bool take_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_any_name(const char* what);
  std::string found() const;  // the current token, for a message
  [[noreturn]] void error(std::size_t at, const std::string& what) const;
  const JinjaSource& source() const { return source_; }

  // Expressions. conditional: "a if b else c" may be one; end_name: a name that ends a tuple.
  Ptr expression(bool conditional = true);
  Ptr tuple(bool conditional = true, std::string_view end_name = {}, bool may_be_empty = false);
  Ptr primary();
  Ptr postfix(Ptr left);
  Ptr filter(Ptr input);  // after "|"
  Ptr filters(Ptr left);
  Ptr unary();
  JinjaArguments arguments();
  Ptr node(JinjaExpr::Kind kind, std::size_t at, std::vector<Ptr> parts = {}) const;

  // Unknown filters and tests are errors at once, but not where a condition may keep them from running.
  std::size_t may_be_skipped_ = 0;
  std::set<std::string> seen_names;  // every name read so far

 private:
  Ptr either();
  Ptr both();
  Ptr negation();
  Ptr comparison();
  std::optional<JinjaExpr::Op> take_comparison();
  Ptr binary(std::initializer_list<std::pair<std::string_view, JinjaExpr::Op>> ops,
             Ptr (JinjaExpressions::*operand)());
  Ptr sum();
  Ptr concatenation();
  Ptr product();
  Ptr power();
  Ptr filtered_unary();
  Ptr constant(std::size_t at, JinjaValue value) const;
  Ptr name();
  Ptr items(std::size_t at);
  Ptr mapping(std::size_t at);
  bool at_tuple_end(std::string_view end_name) const;
  Ptr dotted(Ptr left, std::size_t at);
  Ptr subscript(Ptr left, std::size_t at);
  Ptr call(Ptr callee);
  std::string dotted_name(const char* what);
  Ptr test(Ptr input);
  void grow(JinjaExpr& expr) const;

  const JinjaSource& source_;
  std::vector<JinjaToken> tokens_;
  std::size_t next_ = 0;
  int nesting_ = 0;
};

}  // namespace slideway
