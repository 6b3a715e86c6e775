// A template's statements and expressions, from its tokens. The grammar is that of jinja2 with its loop controls and
// transformers' generation blocks; inheritance, imports and autoescaping are unsupported, each by name.
//
// Errors   corrupt, unsupported, with line and column
#pragma once

#include "text/jinja_lexer.h"
#include "text/jinja_syntax.h"

namespace slideway {

struct JinjaSyntax {
  JinjaBody body;
  bool has_generation = false;
};
JinjaSyntax parse_jinja(const JinjaSource& source);

// Whether the interpreter has a filter or a test of this name (jinja_filters.cpp, jinja_tests.cpp).
bool is_jinja_filter(const std::string& name);
bool is_jinja_test(const std::string& name);

}  // namespace slideway
