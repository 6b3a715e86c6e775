// Formatting of values by a pattern.
//
// Errors   invalid_input: what the pattern asks for and does not get, or what is not supported
#pragma once

#include "text/jinja_interpreter.h"

namespace slideway {

// "%s is %5.1f" % values: one value, a tuple of them, or a mapping for %(name)s.
TracedText jinja_percent(JinjaInterpreter& run, const TracedText& format, const JinjaValue& values);
// "{} and {name[key]!r:>10}".format(values…)
TracedText jinja_brace_format(JinjaInterpreter& run, const TracedText& format, const JinjaCall& values);

}  // namespace slideway
