// From the fields of a request to an answer under way: what completions and chat completions do alike.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/answer_fields.h"
#include "serve/answer_reply.h"
#include "serve/served_model.h"

namespace slideway {

// Text of a user as ids: what spells a control token stays text, unless the server was told otherwise.
TokenIds plain_ids(const ServedModel& model, const std::string& text, bool add_special_tokens = true);

// Tokens the answer may have: those asked for, or, absent, default_tokens, or what the context has room for (0).
// Errors: 400 context_length_exceeded, with all numbers.
std::int64_t answer_tokens(const ServedModel& model, std::size_t prompt_tokens,
                           const std::optional<std::int64_t>& asked, std::int64_t default_tokens,
                           const std::string& param);

struct AnswerPrompt {
  TokenIds ids;
  std::int64_t max_tokens = 0;
};

// prompts × n sequences; choices stand in that order.
HttpReply start_answer(const ApiCall& call, const AnswerFields& fields, std::vector<AnswerPrompt> prompts,
                       std::unique_ptr<AnswerForm> form, const std::string& id_prefix);

}  // namespace slideway
