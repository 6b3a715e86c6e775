// AnswerFields: what completions and chat completions have in common, read from the body.
//
// Sampling that a request leaves open is the model's own (generation_config.json), else OpenAI's: temperature 1, all
// tokens. A request without a seed gets one of ours.
//
// Errors   ApiError 400 with the field: out of range, of another type, or something this server does not do
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_text.h"
#include "serve/fields.h"
#include "serve/request.h"

namespace slideway {

constexpr std::int64_t kMaxChoices = 128;
constexpr std::int64_t kMaxTopLogprobs = 20;

struct AnswerFields {
  std::string model;
  SamplingOptions sampling;
  std::int64_t n = 1;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::int32_t> stop_token_ids;
  AnswerTextOptions text;
  bool ignore_eos = false;
  bool stream = false, include_usage = false;
  std::optional<std::int64_t> top_logprobs;  // absent: none are wanted
  bool prompt_logprobs = false;              // the prompt's too
  std::shared_ptr<const Grammar> grammar;    // what the answer must be; null: anything
};

// All of them but max_tokens and logprobs, which the two spell differently.
AnswerFields read_answer_fields(Fields& fields, const SamplingOptions& defaults);

// The sampling defaults in a model folder's generation_config.json, where it has any.
SamplingOptions generation_defaults(const std::string& model);

}  // namespace slideway
