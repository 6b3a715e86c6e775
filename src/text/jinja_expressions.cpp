#include "text/jinja_expressions.h"

#include <algorithm>

#include "core/error.h"
#include "text/jinja_parser.h"

namespace slideway {

using Kind = JinjaExpr::Kind;
using Op = JinjaExpr::Op;
using Ptr = JinjaExprPtr;

namespace {

constexpr int kMaxTree = 200;     // depth of an expression's tree
constexpr int kMaxNesting = 120;  // two for a bracket, which costs a dozen frames of the stack

}  // namespace

void JinjaExpressions::error(std::size_t at, const std::string& what) const {
  fail(ErrorKind::corrupt, "chat template, ", source_.where(at), ": ", what);
}

std::string JinjaExpressions::found() const {
  switch (current().kind) {
    case JinjaToken::Kind::end:
      return "the end of the template";
    case JinjaToken::Kind::output_end:
      return "'}}'";
    case JinjaToken::Kind::block_end:
      return "'%}'";
    case JinjaToken::Kind::string:
      return "a string";
    default:
      return "'" + current().text + "'";
  }
}

JinjaToken JinjaExpressions::take() {
  JinjaToken token = current();
  if (token.kind != JinjaToken::Kind::end) ++next_;
  return token;
}

bool JinjaExpressions::take_op(std::string_view op) {
  if (!at_op(op)) return false;
  take();
  return true;
}

bool JinjaExpressions::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void JinjaExpressions::expect_op(std::string_view op) {
  if (!take_op(op)) error(current().at, "expected '" + std::string(op) + "', found " + found());
}

std::string JinjaExpressions::expect_any_name(const char* what) {
  if (current().kind != JinjaToken::Kind::name)
    error(current().at, std::string("expected ") + what + ", found " + found());
  return take().text;
}

Ptr JinjaExpressions::node(Kind kind, std::size_t at, std::vector<Ptr> parts) const {
  auto made = std::make_unique<JinjaExpr>();
  made->kind = kind;
  made->at = at;
  made->parts = std::move(parts);
  grow(*made);
  return made;
}

// The interpreter and the destructor walk the tree by recursion: its depth is bounded here.
void JinjaExpressions::grow(JinjaExpr& expr) const {
  const auto under = [&](const Ptr& part) {
    if (part) expr.depth = std::max(expr.depth, part->depth + 1);
  };
  for (const Ptr& part : expr.parts) under(part);
  for (const Ptr& part : expr.arguments.positional) under(part);
  for (const auto& [name, part] : expr.arguments.named) under(part);
  under(expr.arguments.star);
  under(expr.arguments.double_star);
  if (expr.depth > kMaxTree) error(expr.at, "the expression is too deep");
}

namespace {

template <class... Parts>
std::vector<Ptr> list_of(Parts... parts) {
  std::vector<Ptr> list;
  (list.push_back(std::move(parts)), ...);
  return list;
}

}  // namespace

// --- from the loosest binding to the tightest -----------------------------------------------------------------------

Ptr JinjaExpressions::expression(bool conditional) {
  if (++nesting_ > kMaxNesting) error(current().at, "the expression nests too deep");
  Ptr left = either();
  while (conditional && at_name("if")) {
    const std::size_t at = take().at;
    const std::size_t unknown_before = may_be_skipped_;
    ++may_be_skipped_;
    Ptr condition = either();
    Ptr otherwise = take_name("else") ? expression() : nullptr;
    may_be_skipped_ = unknown_before;
    left = node(Kind::conditional, at, list_of(std::move(condition), std::move(left), std::move(otherwise)));
  }
  --nesting_;
  return left;
}

Ptr JinjaExpressions::either() {
  Ptr left = both();
  while (at_name("or")) {
    const std::size_t at = take().at;
    Ptr right = both();
    left = node(Kind::logical_or, at, list_of(std::move(left), std::move(right)));
  }
  return left;
}

Ptr JinjaExpressions::both() {
  Ptr left = negation();
  while (at_name("and")) {
    const std::size_t at = take().at;
    Ptr right = negation();
    left = node(Kind::logical_and, at, list_of(std::move(left), std::move(right)));
  }
  return left;
}

Ptr JinjaExpressions::negation() {
  std::vector<std::size_t> marks;
  while (at_name("not")) marks.push_back(take().at);
  Ptr operand = comparison();
  for (auto at = marks.rbegin(); at != marks.rend(); ++at)
    operand = node(Kind::logical_not, *at, list_of(std::move(operand)));
  return operand;
}

std::optional<Op> JinjaExpressions::take_comparison() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::eq}, {"!=", Op::ne}, {"<", Op::lt},
                                                             {"<=", Op::le}, {">", Op::gt},  {">=", Op::ge}};
  for (const auto& [text, op] : kOps)
    if (take_op(text)) return op;
  if (take_name("in")) return Op::in;
  const bool not_in =
      at_name("not") && tokens_[next_ + 1].kind == JinjaToken::Kind::name && tokens_[next_ + 1].text == "in";
  if (!not_in) return std::nullopt;
  take();
  take();
  return Op::not_in;
}

Ptr JinjaExpressions::comparison() {
  const std::size_t at = current().at;
  std::vector<Ptr> operands = list_of(sum());
  std::vector<Op> ops;
  while (const auto op = take_comparison()) {
    ops.push_back(*op);
    operands.push_back(sum());
  }
  if (ops.empty()) return std::move(operands.front());
  Ptr made = node(Kind::comparison, at, std::move(operands));
  made->ops = std::move(ops);
  return made;
}

// One level of left-binding binary operators, with the level below it.
Ptr JinjaExpressions::binary(std::initializer_list<std::pair<std::string_view, Op>> ops,
                             Ptr (JinjaExpressions::*operand)()) {
  Ptr left = (this->*operand)();
  while (true) {
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const auto& o) { return at_op(o.first); });
    if (op == ops.end()) return left;
    const std::size_t at = take().at;
    Ptr right = (this->*operand)();
    left = node(Kind::binary, at, list_of(std::move(left), std::move(right)));
    left->ops = {op->second};
  }
}

Ptr JinjaExpressions::sum() {
  return binary({{"+", Op::add}, {"-", Op::subtract}}, &JinjaExpressions::concatenation);
}

Ptr JinjaExpressions::concatenation() {
  const std::size_t at = current().at;
  std::vector<Ptr> operands = list_of(product());
  while (take_op("~")) operands.push_back(product());
  return operands.size() == 1 ? std::move(operands.front()) : node(Kind::concat, at, std::move(operands));
}

Ptr JinjaExpressions::product() {
  return binary({{"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}},
                &JinjaExpressions::power);
}

Ptr JinjaExpressions::power() {
  return binary({{"**", Op::power}}, &JinjaExpressions::filtered_unary);
}

Ptr JinjaExpressions::filtered_unary() {
  return filters(unary());
}

Ptr JinjaExpressions::unary() {
  if (++nesting_ > kMaxNesting) error(current().at, "the expression nests too deep");
  const std::size_t at = current().at;
  Ptr made;
  if (take_op("-"))
    made = node(Kind::negate, at, list_of(unary()));
  else if (take_op("+"))
    made = node(Kind::plus, at, list_of(unary()));
  else
    made = primary();
  made = postfix(std::move(made));
  --nesting_;
  return made;
}

// --- operands -------------------------------------------------------------------------------------------------------

Ptr JinjaExpressions::constant(std::size_t at, JinjaValue value) const {
  Ptr made = node(Kind::constant, at);
  made->value = std::move(value);
  return made;
}

Ptr JinjaExpressions::primary() {
  using Token = JinjaToken::Kind;
  const std::size_t at = current().at;
  if (current().kind == Token::string) {
    std::string text;
    while (current().kind == Token::string) text += take().text;
    return constant(at, JinjaValue::of(std::move(text)));
  }
  if (current().kind == Token::number) return constant(at, take().value);
  if (current().kind == Token::name) return name();
  if (take_op("(")) {
    Ptr made = tuple(true, {}, true);
    expect_op(")");
    return made;
  }
  if (take_op("[")) return items(at);
  if (take_op("{")) return mapping(at);
  error(at, "expected an expression, found " + found());
}

Ptr JinjaExpressions::name() {
  const JinjaToken token = take();
  if (token.text == "true" || token.text == "True") return constant(token.at, JinjaValue::of(true));
  if (token.text == "false" || token.text == "False") return constant(token.at, JinjaValue::of(false));
  if (token.text == "none" || token.text == "None") return constant(token.at, JinjaValue());
  Ptr made = node(Kind::name, token.at);
  made->text = token.text;
  seen_names.insert(token.text);
  return made;
}

Ptr JinjaExpressions::items(std::size_t at) {
  std::vector<Ptr> parts;
  while (!at_op("]")) {
    if (!parts.empty()) expect_op(",");
    if (at_op("]")) break;
    parts.push_back(expression());
  }
  expect_op("]");
  return node(Kind::list, at, std::move(parts));
}

Ptr JinjaExpressions::mapping(std::size_t at) {
  std::vector<Ptr> parts;
  while (!at_op("}")) {
    if (!parts.empty()) expect_op(",");
    if (at_op("}")) break;
    parts.push_back(expression());
    expect_op(":");
    parts.push_back(expression());
  }
  expect_op("}");
  return node(Kind::dict, at, std::move(parts));
}

bool JinjaExpressions::at_tuple_end(std::string_view end_name) const {
  using Token = JinjaToken::Kind;
  return current().kind == Token::output_end || current().kind == Token::block_end ||
         current().kind == Token::end || at_op(")") || (!end_name.empty() && at_name(end_name));
}

Ptr JinjaExpressions::tuple(bool conditional, std::string_view end_name, bool may_be_empty) {
  const std::size_t at = current().at;
  std::vector<Ptr> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) expect_op(",");
    if (at_tuple_end(end_name)) break;
    parts.push_back(expression(conditional));
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (!is_tuple && !may_be_empty) error(at, "expected an expression, found " + found());
  return node(Kind::tuple, at, std::move(parts));
}

Ptr JinjaExpressions::postfix(Ptr left) {
  while (true) {
    const std::size_t at = current().at;
    if (take_op(".")) {
      left = dotted(std::move(left), at);
    } else if (take_op("[")) {
      left = subscript(std::move(left), at);
    } else if (at_op("(")) {
      left = call(std::move(left));
    } else {
      return left;
    }
  }
}

Ptr JinjaExpressions::dotted(Ptr left, std::size_t at) {
  if (current().kind == JinjaToken::Kind::number)
    return node(Kind::item, at, list_of(std::move(left), constant(at, take().value)));
  Ptr made = node(Kind::attribute, at, list_of(std::move(left)));
  made->text = expect_any_name("a name or a number after '.'");
  return made;
}

Ptr JinjaExpressions::subscript(Ptr left, std::size_t at) {
  Ptr begin, end, step;
  if (!at_op(":")) {
    begin = expression();
    if (at_op(",")) {  // x[1, 2]: the key is a tuple
      std::vector<Ptr> keys = list_of(std::move(begin));
      while (take_op(",")) keys.push_back(expression());
      begin = node(Kind::tuple, at, std::move(keys));
    }
    if (take_op("]")) return node(Kind::item, at, list_of(std::move(left), std::move(begin)));
  }
  expect_op(":");
  if (!at_op(":") && !at_op("]")) end = expression();
  if (take_op(":") && !at_op("]")) step = expression();
  expect_op("]");
  return node(Kind::slice, at, list_of(std::move(left), std::move(begin), std::move(end), std::move(step)));
}

Ptr JinjaExpressions::call(Ptr callee) {
  const std::size_t at = current().at;
  Ptr made = node(Kind::call, at, list_of(std::move(callee)));
  made->arguments = arguments();
  grow(*made);
  return made;
}

JinjaArguments JinjaExpressions::arguments() {
  const std::size_t at = current().at;
  expect_op("(");
  JinjaArguments out;
  const auto need = [&](bool right) {
    if (!right) error(at, "the arguments are in a wrong order");
  };
  bool first = true;
  while (!at_op(")")) {
    if (!first) expect_op(",");
    if (!first && at_op(")")) break;
    first = false;
    const bool named = current().kind == JinjaToken::Kind::name &&
                       tokens_[next_ + 1].kind == JinjaToken::Kind::op && tokens_[next_ + 1].text == "=";
    if (take_op("*")) {
      need(!out.star && !out.double_star);
      out.star = expression();
    } else if (take_op("**")) {
      need(!out.double_star);
      out.double_star = expression();
    } else if (named) {
      need(!out.double_star);
      std::string name = take().text;
      take();
      out.named.emplace_back(std::move(name), expression());
    } else {
      need(!out.star && !out.double_star && out.named.empty());
      out.positional.push_back(expression());
    }
  }
  expect_op(")");
  return out;
}

// --- filters and tests ----------------------------------------------------------------------------------------------

Ptr JinjaExpressions::filters(Ptr left) {
  while (true) {
    if (take_op("|"))
      left = filter(std::move(left));
    else if (at_name("is"))
      left = test(std::move(left));
    else if (at_op("("))
      left = call(std::move(left));
    else
      return left;
  }
}

std::string JinjaExpressions::dotted_name(const char* what) {
  std::string name = expect_any_name(what);
  while (take_op(".")) name += "." + expect_any_name(what);
  return name;
}

Ptr JinjaExpressions::filter(Ptr input) {
  const std::size_t at = current().at;
  Ptr made = node(Kind::filter, at, list_of(std::move(input)));
  made->text = dotted_name("the name of a filter");
  if (!is_jinja_filter(made->text) && may_be_skipped_ == 0) error(at, "unknown filter '" + made->text + "'");
  if (at_op("(")) made->arguments = arguments();
  grow(*made);
  return made;
}

Ptr JinjaExpressions::test(Ptr input) {
  using Token = JinjaToken::Kind;
  const std::size_t at = take().at;
  const bool negated = take_name("not");
  Ptr made = node(Kind::test, at, list_of(std::move(input)));
  const std::size_t name_at = current().at;
  made->text = dotted_name("the name of a test");
  if (!is_jinja_test(made->text) && may_be_skipped_ == 0) error(name_at, "unknown test '" + made->text + "'");
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return at_name(name); });
  };
  const auto kind = current().kind;
  if (at_op("(")) {
    made->arguments = arguments();
  } else if ((kind == Token::name && !is_one_of({"else", "or", "and", "if", "in", "not", "recursive"})) ||
             kind == Token::string || kind == Token::number || at_op("[") || at_op("{")) {
    if (at_name("is")) error(current().at, "tests cannot be chained with 'is'");
    made->arguments.positional.push_back(postfix(primary()));
  }
  grow(*made);
  return negated ? node(Kind::logical_not, at, list_of(std::move(made))) : std::move(made);
}

}  // namespace slideway
