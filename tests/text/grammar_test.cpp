#include "text/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/random.h"
#include "support/expect_error.h"
#include "support/project_path.h"

namespace slideway {
namespace {

using Json = nlohmann::json;

class GrammarOfSmolLM2 : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = Tokenizer::load(project_path(".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf")).release();
    const std::int32_t end = tokenizer_->eos_token_id();
    compiler_ = new GrammarCompiler(*tokenizer_, vocab(), {&end, 1});
  }
  static void TearDownTestSuite() {
    delete compiler_;
    delete tokenizer_;
  }
  // A padded vocabulary, as models have it.
  static std::int64_t vocab() { return tokenizer_->vocab_size() + 100; }

  // An answer drawn from the tokens that are allowed, and no others; it must end by itself.
  static std::string draw(std::shared_ptr<const Grammar> grammar, std::uint64_t seed) {
    GrammarState state(std::move(grammar));
    std::vector<std::uint32_t> allowed(std::size_t((vocab() + 31) / 32));
    std::string text;
    for (int step = 0; step < 2000; ++step) {
      state.mask(allowed);
      std::vector<std::int32_t> ids;
      for (std::int32_t t = 0; t < vocab(); ++t)
        if (allowed[std::size_t(t / 32)] >> (t % 32) & 1) ids.push_back(t);
      EXPECT_FALSE(ids.empty()) << text;
      if (ids.empty()) return text;
      const std::int32_t end = tokenizer_->eos_token_id();
      const bool may_end = std::find(ids.begin(), ids.end(), end) != ids.end();
      const std::int32_t token = may_end ? end : ids[philox(seed, {std::uint32_t(step)})[0] % ids.size()];
      EXPECT_TRUE(state.accept(token));
      if (state.ended()) return text;
      text += tokenizer_->token_bytes(token);
    }
    return text + " [did not end]";
  }

  static inline Tokenizer* tokenizer_ = nullptr;
  static inline GrammarCompiler* compiler_ = nullptr;
};

TEST_F(GrammarOfSmolLM2, WhateverIsDrawnIsJsonOfTheSchema) {
  const auto grammar = compiler_->json_schema(R"({
    "type": "object",
    "properties": {"kind": {"enum": ["ship", "buoy"]}, "length": {"type": "integer", "minimum": 3, "maximum": 99},
                   "afloat": {"type": "boolean"}},
    "required": ["kind", "length", "afloat"], "additionalProperties": false})");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = draw(grammar, seed);
    const Json json = Json::parse(text, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << text;
    EXPECT_EQ(json.size(), 3u) << text;
    EXPECT_TRUE(json["kind"] == "ship" || json["kind"] == "buoy") << text;
    EXPECT_TRUE(json["length"].is_number_integer() && json["length"] >= 3 && json["length"] <= 99) << text;
    EXPECT_TRUE(json["afloat"].is_boolean()) << text;
  }
}

TEST_F(GrammarOfSmolLM2, AnObjectIsAnObjectAndNothingElse) {
  GrammarState state(compiler_->json_object());
  EXPECT_FALSE(state.accept(tokenizer_->id_of("[")));
  EXPECT_FALSE(state.accept(tokenizer_->eos_token_id()));
  EXPECT_TRUE(state.accept(tokenizer_->id_of("{")));
  EXPECT_TRUE(state.accept(tokenizer_->id_of("}")));
  EXPECT_FALSE(state.ended());
  EXPECT_TRUE(state.accept(tokenizer_->eos_token_id()));
  EXPECT_TRUE(state.ended());
}

TEST_F(GrammarOfSmolLM2, SpecialTokensAndPaddingAreNeverAllowed) {
  GrammarState state(compiler_->json_object());
  std::vector<std::uint32_t> allowed(std::size_t((vocab() + 31) / 32));
  for (const char* text : {"{", "\""}) {
    ASSERT_TRUE(state.accept(tokenizer_->id_of(text)));
    state.mask(allowed);
    for (std::int32_t t = 0; t < vocab(); ++t) {
      const bool never = t >= tokenizer_->vocab_size() || tokenizer_->is_special(t);
      EXPECT_FALSE(never && (allowed[std::size_t(t / 32)] >> (t % 32) & 1)) << t;
    }
  }
}

TEST_F(GrammarOfSmolLM2, WhatCannotBeKeptToIsRefusedByName) {
  struct Case {
    const char* schema;
    ErrorKind kind;
    const char* said;
  };
  const Case cases[] = {
      {R"({"type":"string","format":"postcode"})", ErrorKind::unsupported, "postcode"},
      {R"({"type":"array","uniqueItems":true})", ErrorKind::unsupported, "uniqueItems"},
      {R"({"type":"number","multipleOf":0.5})", ErrorKind::unsupported, "multipleOf"},
      {R"({"not":{"type":"string"}})", ErrorKind::unsupported, "not"},
      {R"({"type":"string","pattern":"a+","minLength":3})", ErrorKind::unsupported, "minLength"},
      {R"({"type":"ship"})", ErrorKind::invalid_input, "ship"},
      {R"({"type":"integer","minimum":5,"maximum":1})", ErrorKind::invalid_input, "minimum"},
      {R"({"anyOf":[{"type":"null"}],"minLength":3})", ErrorKind::unsupported, "beside \"anyOf\""},
      {R"({"allOf":[{"type":"string"},{"type":"string","minLength":2}]})", ErrorKind::unsupported, "allOf"},
      {R"({"properties":{"a":{"minimum":3}}})", ErrorKind::unsupported, "needs a \"type\""},
      {R"({"type":"object","properties":{"a":{"enum":["x",1],"type":"string"}}})", ErrorKind::invalid_input,
       "enum 1"},
      {R"({"type":"string","pattern":"(?=a)b"})", ErrorKind::unsupported, "ookahead"},
      {R"({"$ref":"https://example.org/a.json"})", ErrorKind::unsupported, "example.org"},
      {R"({"type":"object","properties":{"a":{"type":"string","pattern":"^(open"}},"required":["a"]})",
       ErrorKind::invalid_input, "parenthesis is not closed"},
      {R"({"type":"object","properties":{"a":"bar"}})", ErrorKind::invalid_input, "bar"},
      {R"({"$ref":"#"})", ErrorKind::invalid_input, "#"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"type":"object","properties":{"x":{"$ref":"#/$defs/a"}},"required":["x"]})",
       ErrorKind::invalid_input, "$defs"},
      {R"({"$ref":"#/$defs/none"})", ErrorKind::invalid_input, "none"},
      {"{", ErrorKind::invalid_input, "not JSON"},
      {"[]", ErrorKind::invalid_input, "object"},
  };
  for (const Case& c : cases)
    for (int again = 0; again < 2; ++again) {  // the second time, too
      SCOPED_TRACE(c.schema);
      expect_error(c.kind, {c.said}, [&] { compiler_->json_schema(c.schema); });
    }
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = R"({"items":)" + deep + "}";
  expect_error(ErrorKind::unsupported, {"deep"}, [&] { compiler_->json_schema(deep); });
}

TEST_F(GrammarOfSmolLM2, PropertiesMayBeCalledWhatKeywordsAreCalled) {
  const auto grammar = compiler_->json_schema(
      R"({"type":"object","properties":{"format":{"const":1},"not":{"const":2}},"required":["format","not"],
          "additionalProperties":false})");
  EXPECT_EQ(Json::parse(draw(grammar, 1), nullptr, false), (Json{{"format", 1}, {"not", 2}}));
}

TEST_F(GrammarOfSmolLM2, LargeCountsCostNoMemoryAndWhatNothingSatisfiesAllowsNothing) {
  std::vector<std::uint32_t> allowed(std::size_t((vocab() + 31) / 32));
  for (const char* schema :
       {R"({"type":"string","minLength":100000000})", R"({"type":"string","pattern":"(a{1000}){1000}"})",
        R"({"type":"array","items":{"type":"integer"},"minItems":100000000})"})
    EXPECT_TRUE(GrammarState(compiler_->json_schema(schema)).mask(allowed)) << schema;
  const auto never = compiler_->json_schema(
      R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})");
  EXPECT_FALSE(GrammarState(never).mask(allowed));
}

TEST_F(GrammarOfSmolLM2, TakesWhatPydanticWrites) {
  const auto grammar = compiler_->json_schema(R"({
    "$defs": {"Cargo": {"properties": {"tons": {"title": "Tons", "type": "number"}}, "required": ["tons"],
                        "title": "Cargo", "type": "object", "additionalProperties": false}},
    "properties": {"cargo": {"items": {"$ref": "#/$defs/Cargo", "description": "what it carries"}, "maxItems": 2, "type": "array"},
                   "name": {"anyOf": [{"type": "null"}, {"const": "Aud", "type": "string"}], "default": null, "title": "Name"}},
    "required": ["cargo", "name"], "title": "Ship", "type": "object", "additionalProperties": false})");
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Json json = Json::parse(draw(grammar, seed), nullptr, false);
    ASSERT_TRUE(json.is_object() && json["cargo"].is_array() && json["cargo"].size() <= 2) << json;
    EXPECT_TRUE(json["name"].is_null() || json["name"] == "Aud") << json;
  }
}

}  // namespace
}  // namespace slideway
