#include "text/jinja_parser.h"

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "text/jinja_expressions.h"

namespace slideway {

using Stmt = JinjaStmt;
using StmtPtr = std::unique_ptr<JinjaStmt>;
using Token = JinjaToken::Kind;

namespace {

constexpr int kMaxBlocks = 60;  // blocks in blocks

class Parser : private JinjaExpressions {
 public:
  explicit Parser(const JinjaSource& source) : JinjaExpressions(source, tokenize_jinja(source)) {}

  JinjaSyntax run() {
    JinjaSyntax syntax;
    syntax.body = body({}, 0);
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Statements up to a block that begins with one of `ends`, whose name is left as the current token.
  JinjaBody body(Names ends, std::size_t opened_at) {
    if (++nesting_ > kMaxBlocks) error(current().at, "blocks nest too deep");
    JinjaBody out;
    while (true) {
      const std::size_t at = current().at;
      switch (current().kind) {
        case Token::data:
          out.push_back(data());
          break;
        case Token::output_begin:
          out.push_back(output());
          break;
        case Token::block_begin:
          take();
          if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return at_name(end); })) {
            --nesting_;
            return out;
          }
          out.push_back(statement(ends));
          expect_block_end();
          break;
        default:
          if (ends.size() > 0)
            error(opened_at, "this block has no {% " + std::string(*(ends.end() - 1)) + " %}");
          if (current().kind != Token::end) error(at, "unexpected " + found());
          --nesting_;
          return out;
      }
    }
  }

  // The rest of an opening tag, the statements, and the name of the tag that ends them.
  JinjaBody block(Names ends, std::size_t at) {
    take_op(":");
    expect_block_end();
    return body(ends, at);
  }
  JinjaBody block_to(std::string_view end, std::size_t at) {
    JinjaBody out = block({end}, at);
    take();
    return out;
  }

  void expect_block_end() {
    if (current().kind != Token::block_end) error(current().at, "expected '%}', found " + found());
    take();
  }

  static StmtPtr make(Stmt::Kind kind, std::size_t at) {
    auto made = std::make_unique<Stmt>();
    made->kind = kind;
    made->at = at;
    return made;
  }

  StmtPtr data() {
    StmtPtr made = make(Stmt::Kind::data, current().at);
    made->text = take().text;
    return made;
  }

  StmtPtr output() {
    StmtPtr made = make(Stmt::Kind::output, take().at);
    made->value = tuple();
    if (current().kind != Token::output_end) error(current().at, "expected '}}', found " + found());
    take();
    return made;
  }

  StmtPtr print(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::output, at);
    std::vector<Ptr> values;
    do values.push_back(expression());
    while (take_op(","));
    made->value = node(JinjaExpr::Kind::concat, at, std::move(values));
    return made;
  }

  StmtPtr statement(Names ends) {
    const std::size_t at = current().at;
    const std::string tag = expect_any_name("the name of a statement");
    if (tag == "if") return condition(at);
    if (tag == "for") return loop(at);
    if (tag == "set") return assignment(at);
    if (tag == "macro") return macro(at);
    if (tag == "call") return call_block(at);
    if (tag == "filter") return filter_block(at);
    if (tag == "with") return with(at);
    if (tag == "generation") return generation(at);
    if (tag == "break" || tag == "continue") return jump(tag, at);
    if (tag == "print") return print(at);
    for (const char* known : {"block", "extends", "include", "import", "from", "autoescape"})
      if (tag == known)
        fail(ErrorKind::unsupported, "chat template, ", where(at), ": {% ", tag, " %} is not supported");
    error(at,
          "unknown tag '" + tag + "'" +
              (ends.size() > 0 ? "; the open block ends with '" + std::string(*(ends.end() - 1)) + "'" : ""));
  }
  std::string where(std::size_t at) const { return source().where(at); }

  StmtPtr condition(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::condition, at);
    ++may_be_skipped_;
    while (true) {
      Ptr test = tuple(false);
      JinjaBody then = block({"elif", "else", "endif"}, at);
      made->branches.emplace_back(std::move(test), std::move(then));
      const std::string next = take().text;
      if (next == "elif") continue;
      if (next == "else") made->otherwise = block_to("endif", at);
      break;
    }
    --may_be_skipped_;
    return made;
  }

  StmtPtr loop(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::loop, at);
    ++loops_;
    made->target = target("in");
    if (!take_name("in")) error(current().at, "expected 'in', found " + found());
    made->value = tuple(false, "recursive");
    if (take_name("if")) made->filter = expression();
    made->recursive = take_name("recursive");
    made->body = block({"else", "endfor"}, at);
    --loops_;
    if (take().text == "else") made->otherwise = block_to("endfor", at);
    return made;
  }

  StmtPtr jump(const std::string& tag, std::size_t at) {
    if (loops_ == 0) error(at, "{% " + tag + " %} outside of a loop");
    return make(tag == "break" ? Stmt::Kind::break_loop : Stmt::Kind::continue_loop, at);
  }

  StmtPtr assignment(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::assign, at);
    made->target = target({}, true);
    if (take_op("=")) {
      made->value = tuple();
      return made;
    }
    made->kind = Stmt::Kind::assign_block;
    while (take_op("|")) made->value = filter(std::move(made->value));
    made->body = block_to("endset", at);
    return made;
  }

  StmtPtr with(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::with, at);
    while (current().kind != Token::block_end && !at_op(":")) {
      if (!made->assignments.empty()) expect_op(",");
      Ptr name = target({});
      expect_op("=");
      Ptr value = expression();
      made->assignments.emplace_back(std::move(name), std::move(value));
    }
    made->body = block_to("endwith", at);
    return made;
  }

  StmtPtr filter_block(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::filter, at);
    made->value = filter(nullptr);
    while (take_op("|")) made->value = filter(std::move(made->value));
    made->body = block_to("endfilter", at);
    return made;
  }

  StmtPtr generation(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::generation, at);
    has_generation_ = true;
    const int loops = std::exchange(loops_, 0);  // its body is a macro's: no jumps out of it
    made->body = block_to("endgeneration", at);
    loops_ = loops;
    return made;
  }

  StmtPtr macro(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::macro, at);
    made->macro.name = expect_any_name("the macro's name");
    check_target_name(made->macro.name, at);
    signature(made->macro);
    macro_body(*made, "endmacro", at);
    return made;
  }

  StmtPtr call_block(std::size_t at) {
    StmtPtr made = make(Stmt::Kind::call, at);
    made->macro.name = "caller";
    if (at_op("(")) signature(made->macro);
    made->value = filters(unary());
    if (made->value->kind != JinjaExpr::Kind::call) error(at, "{% call %} needs a call");
    macro_body(*made, "endcall", at);
    return made;
  }

  void signature(JinjaMacroDef& macro) {
    expect_op("(");
    while (!at_op(")")) {
      if (!macro.parameters.empty()) expect_op(",");
      const std::size_t at = current().at;
      macro.parameters.push_back(expect_any_name("a parameter"));
      check_target_name(macro.parameters.back(), at);
      if (take_op("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        error(at, "a parameter without a default follows one that has it");
    }
    expect_op(")");
  }

  void macro_body(Stmt& made, std::string_view end, std::size_t at) {
    const int loops = std::exchange(loops_, 0);
    std::set<std::string> outside = std::exchange(seen_names, {});
    made.body = block_to(end, at);
    made.macro.uses_caller = seen_names.contains("caller");
    made.macro.uses_kwargs = seen_names.contains("kwargs");
    made.macro.uses_varargs = seen_names.contains("varargs");
    seen_names.merge(outside);
    loops_ = loops;
  }

  // --- what can be assigned to: names, tuples of them, and in `set` a namespace's attributes -----------------------

  Ptr target(std::string_view end_name, bool with_attributes = false) {
    const std::size_t at = current().at;
    std::vector<Ptr> parts;
    bool is_tuple = false;
    do {
      if (!parts.empty() &&
          (at_op("=") || current().kind == Token::block_end || (!end_name.empty() && at_name(end_name))))
        break;  // a comma at the end
      parts.push_back(single_target(with_attributes));
      is_tuple = is_tuple || at_op(",");
    } while (take_op(","));
    return is_tuple ? node(JinjaExpr::Kind::tuple, at, std::move(parts)) : std::move(parts.front());
  }

  Ptr single_target(bool with_attributes) {
    const std::size_t at = current().at;
    if (take_op("(")) {
      if (++nesting_ > kMaxBlocks) error(at, "the target nests too deep");
      Ptr inner = target({}, with_attributes);
      expect_op(")");
      --nesting_;
      return inner;
    }
    Ptr name = node(JinjaExpr::Kind::name, at);
    name->text = expect_any_name("a name to assign to");
    if (with_attributes && take_op(".")) {
      std::vector<Ptr> object;
      object.push_back(std::move(name));
      Ptr made = node(JinjaExpr::Kind::attribute, at, std::move(object));
      made->text = expect_any_name("an attribute's name");
      return made;
    }
    check_target_name(name->text, at);
    if (name->text == "loop" && loops_ > 0) error(at, "'loop' cannot be assigned to inside a loop");
    return name;
  }

  void check_target_name(const std::string& name, std::size_t at) const {
    for (const char* constant : {"true", "True", "false", "False", "none", "None"})
      if (name == constant) error(at, "cannot assign to " + name);
  }

  int nesting_ = 0;
  int loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace

JinjaSyntax parse_jinja(const JinjaSource& source) {
  return Parser(source).run();
}

}  // namespace slideway
