// JinjaTemplate: a chat template, parsed once and rendered many times, as transformers renders it.
//
// The language is jinja2's, with loop controls, generation blocks, tojson, raise_exception and strftime_now:
// statements for, if, set, macro, call, filter, with, raw, print; all its tests; its filters save those that make HTML
// or chance (urlize, xmlattr, striptags, wordwrap, filesizeformat, pprint, random, groupby, slice); Python's methods of
// str, dict and list that do not change them. Nothing is escaped, so `safe` changes nothing. Whole numbers have 64 bits.
//
// Threads  const calls from any number of threads, each with its own heap
// Errors   corrupt, unsupported at construction; invalid_input while rendering; all with line and column
// Source   jinja2 3.1's ImmutableSandboxedEnvironment; transformers' apply_chat_template
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace slideway {

class JinjaTemplate {
 public:
  using Variables = std::vector<std::pair<std::string, JinjaValue>>;

  explicit JinjaTemplate(const std::string& source)
      : source_(make_jinja_source(source)), syntax_(parse_jinja(source_)) {}

  TracedText render(JinjaHeap& heap, const Variables& variables, const JinjaLimits& limits,
                    JinjaInterpreter::Clock clock) const {
    JinjaInterpreter run(source_, heap, limits, std::move(clock));
    for (const auto& [name, value] : variables) run.set_variable(name, value);
    return run.render(syntax_.body);
  }
  bool has_generation() const { return syntax_.has_generation; }
  const std::string& source() const { return source_.text; }

 private:
  JinjaSource source_;
  JinjaSyntax syntax_;
};

}  // namespace slideway
