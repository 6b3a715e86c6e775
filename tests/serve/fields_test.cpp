#include "serve/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/answer_fields.h"
#include "serve/api_error.h"

namespace slideway {
namespace {

// The 400 of reading a body.
void expect_400(const std::string& body, const std::string& param, const std::string& text) {
  try {
    Fields fields = parse_body(body);
    read_answer_fields(fields, {});
    fields.finish();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.form().status, 400) << body;
    EXPECT_EQ(error.form().param, param) << body;
    EXPECT_THAT(error.what(), testing::HasSubstr(text)) << body;
    return;
  }
  ADD_FAILURE() << "was taken: " << body;
}

AnswerFields read(const std::string& body) {
  Fields fields = parse_body(body);
  AnswerFields out = read_answer_fields(fields, {.temperature = 0.5f});
  fields.finish();
  return out;
}

TEST(Fields, NameTheFieldThatIsWrong) {
  expect_400("[]", "", "should be an object");
  expect_400("{", "", "not JSON");
  expect_400(R"({"n": 1, "n": 2})", "", "n");
  expect_400(R"({"temperature": "hot"})", "temperature", "hot");
  expect_400(R"({"temperature": -1})", "temperature", "from 0");
  expect_400(R"({"top_p": 0})", "top_p", "more than 0");
  expect_400(R"({"n": 0})", "n", "from 1 to 128");
  expect_400(R"({"n": 100000})", "n", "from 1 to 128");
  expect_400(R"({"n": 1.5})", "n", "whole number");
  expect_400(R"({"seed": 18446744073709551615})", "seed", "whole number");
  expect_400(R"({"stop": [""]})", "stop", "none of them empty");
  expect_400(R"({"stop": 3})", "stop", "3");
  expect_400(R"({"stop_token_ids": [-1]})", "stop_token_ids", "-1");
  expect_400(R"({"stream": 1})", "stream", "true or false");
  expect_400(R"({"stream_options": {"include_usage": true}})", "stream_options", "stream is true");
  expect_400(R"({"stream": true, "stream_options": {"x": 1}})", "stream_options.x", "Unrecognized");
}

TEST(Fields, RefuseWhatThisServerDoesNotDo) {
  for (const char* name :
       {"best_of", "use_beam_search", "guided_json", "prompt_logprobs", "store", "priority"})
    expect_400("{\"" + std::string(name) + "\": 7}", name, "not supported");
  expect_400(R"({"frobnicate": 1})", "frobnicate", "Unrecognized");
}

TEST(Fields, TakeNullForAbsentAndLeaveDefaultsAlone) {
  const AnswerFields fields =
      read(R"({"temperature": null, "stop": null, "n": null, "store": false, "user": "u"})");
  EXPECT_EQ(fields.sampling.temperature, 0.5f);
  EXPECT_EQ(fields.n, 1);
  EXPECT_TRUE(fields.text.stops.empty());
}

TEST(Fields, KeepASeedAndDrawOneWhereThereIsNone) {
  EXPECT_EQ(read(R"({"seed": -7})").sampling.seed, std::uint64_t(-7));
  EXPECT_NE(read("{}").sampling.seed, read("{}").sampling.seed);
}

TEST(Fields, ShowAValueShortAndNeverHalfACharacter) {
  const std::string text = shown(Json(std::string(78, 'a') + "ééé"));
  EXPECT_LE(text.size(), 84u);
  EXPECT_NO_THROW((void)Json(text).dump());
}

}  // namespace
}  // namespace slideway
