#include "serve/request.h"

namespace slideway {

std::vector<std::int32_t> end_ids_of(const ModelConfig& config, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids(config.eos_token_ids.begin(), config.eos_token_ids.end());
  if (ids.empty() && tokenizer.eos_token_id() >= 0) ids.push_back(tokenizer.eos_token_id());
  return ids;
}

TokenIds prompt_ids_of(std::string_view text, const Tokenizer& tokenizer) {
  TokenIds ids = tokenizer.encode(text);
  if (ids.empty() && tokenizer.bos_token_id() >= 0) ids.push_back(tokenizer.bos_token_id());
  return ids;
}

}  // namespace slideway
