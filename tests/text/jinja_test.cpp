#include "text/jinja.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace slideway {
namespace {

std::string rendered(const std::string& source, const std::string& variables_json = "{}",
                     JinjaLimits limits = {}) {
  const JinjaTemplate jinja(source);
  JinjaHeap heap;
  JinjaTemplate::Variables variables;
  const JinjaValue given = value_from_json(heap, variables_json, Origin::kGiven);
  for (const auto& [name, value] : given.dict().entries) variables.emplace_back(name.text().bytes(), value);
  return jinja.render(heap, variables, limits, [] { return std::time_t(0); }).bytes();
}

// Every byte of the text that came from a variable, the others as dots.
std::string given_bytes(const std::string& source, const std::string& variables_json) {
  const JinjaTemplate jinja(source);
  JinjaHeap heap;
  JinjaTemplate::Variables variables;
  const JinjaValue given = value_from_json(heap, variables_json, Origin::kGiven);
  for (const auto& [name, value] : given.dict().entries) variables.emplace_back(name.text().bytes(), value);
  const TracedText text = jinja.render(heap, variables, {}, [] { return std::time_t(0); });
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    out += text.origin_at(i).source == Origin::kGiven ? text.bytes()[i] : '.';
  return out;
}

TEST(Jinja, DropsTheNewlineAfterABlockAndTheBlanksBeforeIt) {
  EXPECT_EQ(rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(rendered("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(rendered("  {%+ if true %}\nx{% endif +%}\ny"), "  x\ny");
}

TEST(Jinja, KeepsTheOrderOfMappingsAndWritesJsonAsPythonDoes) {
  EXPECT_EQ(
      rendered("{{ d | tojson }}", R"({"d": {"b": [1, 2.0, 1e22], "a": "<é>\n\"", "n": null, "t": true}})"),
      R"({"b": [1, 2.0, 1e+22], "a": "<é>\n\"", "n": null, "t": true})");
}

TEST(Jinja, BytesRememberThatTheyWereGiven) {
  const std::string variables = R"({"x": " <|im_end|> "})";
  EXPECT_EQ(given_bytes("[{{ x }}]", variables), ". <|im_end|> .");
  EXPECT_EQ(given_bytes("{{ x | trim }}", variables), "<|im_end|>");
  EXPECT_EQ(given_bytes("{{ '<|im_end|>' }}", variables), "..........");
  EXPECT_EQ(given_bytes("{{ '<' + x[2:] }}", variables), ".|im_end|> ");
  EXPECT_EQ(given_bytes("{{ 'a' ~ x.strip() ~ 'b' }}", variables), ".<|im_end|>.");
  EXPECT_EQ(given_bytes("{{ x | upper }}", variables), " <|IM_END|> ");
  EXPECT_EQ(given_bytes("{{ x | replace('im', 'x') | trim }}", variables), "<|._end|>");
  EXPECT_EQ(given_bytes("{{ x.split('|')[1] }}", variables), "im_end");
  EXPECT_EQ(given_bytes("{{ x.split('|') | join('|') | trim }}", variables), "<.im_end.>");
  EXPECT_EQ(given_bytes("{{ '%s!' % x.strip() }}", variables), "<|im_end|>.");
  EXPECT_EQ(given_bytes("{{ '{}!'.format(x.strip()) }}", variables), "<|im_end|>.");
  EXPECT_EQ(given_bytes("{% set y %}({{ x | trim }}){% endset %}{{ y }}", variables), ".<|im_end|>.");
  EXPECT_EQ(given_bytes("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x.strip()) }}", variables),
            ".<|im_end|>.");
  EXPECT_EQ(given_bytes("{% filter lower %}A{{ x | trim }}{% endfilter %}", variables), ".<|im_end|>");
  EXPECT_EQ(given_bytes("{{ x | trim | reverse }}", variables), ">|dne_mi|<");
  EXPECT_EQ(given_bytes("{{ x | trim | center(14) }}", variables), "..<|im_end|>..");
  EXPECT_EQ(given_bytes("{{ x | trim | list | join }}", variables), "<|im_end|>");
  EXPECT_EQ(given_bytes("{% for c in x | trim %}{{ c }}{% endfor %}", variables), "<|im_end|>");
}

TEST(Jinja, JsonOfGivenTextStaysGivenWithItsQuotes) {
  EXPECT_EQ(given_bytes("{{ [x] | tojson }}", R"({"x": "a\"<|e|>"})"), R"(."a\"<|e|>".)");
}

TEST(Jinja, ParseErrorsNameLineAndColumn) {
  const auto fails_at = [](const std::string& source, const std::string& place, const std::string& why) {
    expect_error(ErrorKind::corrupt, {place, why}, [&] { JinjaTemplate jinja(source); });
  };
  fails_at("a\nb {% nope %}", "line 2, column 6", "unknown tag 'nope'");
  fails_at("é {{ 1 + }}", "line 1, column 10", "expected an expression, found '}}'");
  fails_at("{% if x %}\n\n{% for i in l %}", "line 3, column 4", "no {% endfor %}");
  fails_at("{{ x | nope }}", "line 1, column 8", "unknown filter 'nope'");
  fails_at("{{ x is nope }}", "line 1, column 9", "unknown test 'nope'");
  fails_at("x\n{# open", "line 2, column 1", "has no end");
  fails_at("{{ 'open }}", "line 1, column 4", "has no end");
  fails_at("{{ f(] }}", "line 1, column 6", "expected ')'");
  fails_at("{% break %}", "line 1, column 4", "outside of a loop");
  fails_at("\xff", "byte 0", "not UTF-8");
}

TEST(Jinja, WhatTheLanguageHasAndWeDoNotIsUnsupportedByName) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "extends 'x'", "block b", "autoescape true"})
    expect_error(ErrorKind::unsupported, {"not supported", "line 1"},
                 [&] { JinjaTemplate jinja("{% " + std::string(tag) + " %}"); });
}

TEST(Jinja, ErrorsWhileRenderingNameTheirPlace) {
  const auto fails_at = [](const std::string& source, const std::string& place, const std::string& why) {
    expect_error(ErrorKind::invalid_input, {place, why}, [&] { rendered(source); });
  };
  fails_at("a\n{{ x.y }}", "line 2, column 5", "'x' is undefined");
  fails_at("{{ 1 + 'a' }}", "line 1, column 6", "'+' is not defined for int and str");
  fails_at("\n{{ raise_exception('no ' ~ 'way') }}", "line 2", "it refuses the messages: no way");
  fails_at("{{ {'a': 1}.b.c }}", "line 1", "'dict object' has no attribute 'b'");
  fails_at("{{ 9223372036854775807 + 1 }}", "line 1", "passes 64 bits");
}

TEST(Jinja, EndsAtItsLimits) {
  const JinjaLimits limits = {.steps = 500'000, .text_bytes = 100'000};
  const auto ends = [&](const std::string& source, const std::string& why) {
    expect_error(ErrorKind::invalid_input, {why}, [&] { rendered(source, "{}", limits); });
  };
  ends("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "does not end within");
  ends("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recurses too deep");
  ends(
      "{% set ns = namespace(s='x' * 1000) %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor "
      "%}",
      "a text passes 100000 bytes");
  ends("{{ 'x' * 99999999999 }}", "a text passes");
  ends("{{ [0] * 99999999999 }}", "does not end within");
  ends("{{ ' ' | center(99999999999) }}", "a text passes");
  ends("{{ '%99999d' % 1 }}", "width");
  ends("{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}",
       "nest deeper");
  ends("{{ 'a'.replace('', 'x' * 60000) }}", "a text passes");
  ends("{% for i in range(9) %}{{ 'x' * 20000 }}{% endfor %}", "a text passes");
}

TEST(Jinja, RefusesTreesThatWouldOverflowTheStack) {
  const auto repeated = [](const std::string& part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  const auto around = [&](const std::string& open, const std::string& inner, const std::string& close) {
    return "{{ " + repeated(open, 5000) + inner + repeated(close, 5000) + " }}";
  };
  for (const std::string& source :
       {around("(", "1", ")"), around("[", "1", "]"), around("- ", "1", ""), around("not ", "x", ""),
        around("", "x", ".a"), around("", "x", "|trim"), around("", "1", "+1"),
        around("x if x else ", "x", ""), around("{1:", "1", "}"), around("f(", "1", ")"),
        around("x[", "1", "]"), repeated("{% if x %}", 5000), repeated("{% generation %}", 5000)})
    expect_error(ErrorKind::corrupt, {"deep"}, [&] { JinjaTemplate jinja(source); });
}

TEST(Jinja, LongFlatTemplatesAreNotDeep) {
  std::string source = "{{ ''";
  for (int i = 0; i < 150; ++i) source += " ~ 'x'";
  source += " }}";
  for (int i = 0; i < 2000; ++i) source += "{% if a %}{{ b }}{% endif %}";
  EXPECT_EQ(rendered(source).size(), 150u);
}

TEST(Jinja, ANamespaceMayHoldItself) {
  EXPECT_EQ(
      rendered(
          "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.me.l | length }}"),
      "1");
}

TEST(Jinja, LargeWholeNumbersPrintAsTheyWereGiven) {
  EXPECT_EQ(
      rendered("{{ x }} {{ x | tojson }} {{ x is integer }}", R"({"x": 123456789012345678901234567890})"),
      "123456789012345678901234567890 123456789012345678901234567890 True");
}

TEST(Jinja, ManyRenderingsOfOneTemplateAreAlike) {
  const JinjaTemplate jinja(
      "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}");
  for (int i = 0; i < 3; ++i) {
    JinjaHeap heap;
    EXPECT_EQ(jinja.render(heap, {}, {}, [] { return std::time_t(0); }).bytes(), "10");
  }
}

TEST(Jinja, BrokenJsonNamesTheByte) {
  JinjaHeap heap;
  expect_error(ErrorKind::invalid_input, {"byte 6"}, [&] { value_from_json(heap, R"({"a":})", 0); });
  expect_error(ErrorKind::invalid_input, {"nests deeper"},
               [&] { value_from_json(heap, std::string(1000, '['), 0); });
}

}  // namespace
}  // namespace slideway
