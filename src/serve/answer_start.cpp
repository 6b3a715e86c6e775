#include "serve/answer_start.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "serve/api_error.h"

namespace slideway {
namespace {

constexpr std::size_t kMaxSequences = 1024;  // of one request

std::string random_id(const std::string& prefix) {
  thread_local std::mt19937_64 numbers{std::random_device()()};
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(numbers()),
                static_cast<unsigned long long>(numbers()));
  return prefix + text;
}

std::int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<std::int32_t> end_ids(const ServedModel& model, const AnswerFields& fields) {
  std::vector<std::int32_t> ids = fields.stop_token_ids;
  if (!fields.ignore_eos) ids.insert(ids.end(), model.end_ids.begin(), model.end_ids.end());
  return ids;
}

}  // namespace

TokenIds plain_ids(const ServedModel& model, const std::string& text, bool add_special_tokens) {
  return model.tokenizer->encode(
      text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = model.options.special_text});
}

std::int64_t answer_tokens(const ServedModel& model, std::size_t prompt_tokens,
                           const std::optional<std::int64_t>& asked, std::int64_t default_tokens,
                           const std::string& param) {
  const auto prompt = std::int64_t(prompt_tokens);
  const std::int64_t room = model.context - prompt;
  const std::int64_t tokens = asked                ? *asked
                              : default_tokens > 0 ? std::min(default_tokens, std::max<std::int64_t>(room, 1))
                                                   : std::max<std::int64_t>(room, 1);
  if (tokens > room)
    fail_api({.param = param, .code = "context_length_exceeded"}, "The context is ", model.context,
             " tokens, but the request needs ", prompt, " for the prompt + ", tokens, " for the answer.");
  return tokens;
}

HttpReply start_answer(const ApiCall& call, const AnswerFields& fields, std::vector<AnswerPrompt> prompts,
                       std::unique_ptr<AnswerForm> form, const std::string& id_prefix) {
  ServedModel& model = call.model;
  const std::size_t n = std::size_t(fields.n);
  if (prompts.size() * n > kMaxSequences)
    fail_field("n", prompts.size(), " prompts with ", n, " choices each are more than ", kMaxSequences,
               " sequences");
  if (model.engine->status().waiting + std::int64_t(prompts.size() * n) > model.options.max_waiting)
    fail_api({.status = 429, .code = "queue_full"}, "Too many requests are waiting; try again later.");
  const ModelNames::Found found = model.names->find(fields.model, call.key);
  model.names->count(found);
  AnswerHead head{.id = random_id(id_prefix),
                  .model = fields.model.empty() ? found.name : fields.model,
                  .created = now_seconds(),
                  .stream = fields.stream,
                  .include_usage = fields.include_usage,
                  .served_by = found.name,
                  .metrics = model.metrics.get()};
  std::vector<Request> requests;
  std::vector<AnswerChoice> choices;
  for (const AnswerPrompt& prompt : prompts) {
    head.prompt_tokens += std::int64_t(prompt.ids.size());
    for (std::size_t i = 0; i < n; ++i) {
      requests.push_back({.prompt = prompt.ids,
                          .adapter = found.adapter,
                          .sampling = fields.sampling,
                          .choice = i,
                          .max_tokens = prompt.max_tokens,
                          .end_ids = end_ids(model, fields),
                          .min_tokens = fields.text.min_tokens,
                          .logprobs = fields.top_logprobs,
                          .prompt_logprobs = fields.prompt_logprobs,
                          .grammar = fields.grammar});
      choices.push_back({.index = choices.size(),
                         .text = AnswerText(*model.tokenizer, fields.text),
                         .stop_token_ids = fields.stop_token_ids});
    }
  }
  HttpReply reply;
  reply.log = "model=" + dump(found.name) + " prompt_tokens=" + std::to_string(head.prompt_tokens);
  reply.later = std::make_unique<AnswerReply>(
      std::move(head), std::move(form), std::move(choices),
      model.engine->generate(std::move(requests), found.adapter ? found.name : "", call.http.wake));
  return reply;
}

}  // namespace slideway
