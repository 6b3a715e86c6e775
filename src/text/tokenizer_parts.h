// The parts of a Tokenizer, for its own sources.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/token_text.h"
#include "text/tokenizer.h"

namespace slideway {

struct Tokenizer::Parts {
  struct Scratch {
    PreTokenizer::Scratch pre_tokenizer;
    Bpe::Scratch bpe;
    std::vector<Span> words;
  };

  // json: what it was read from, kept for saving.
  Parts(TokenizerSpec spec, std::string json);

  // What one call needs is lent to it, so that word caches outlive calls and no two threads share one.
  std::unique_ptr<Scratch> borrow();
  void give_back(std::unique_ptr<Scratch> scratch);

  std::string_view token(std::int32_t id) const;
  // As token, but of an added token that is found in normalised text the normalised form, which tokenizers decodes to.
  std::string_view decoded_token(std::int32_t id) const;
  std::int32_t id_of(std::string_view token) const;

  std::string json, config;
  std::map<std::string, std::int32_t, std::less<>> added_ids;
  std::unordered_map<std::int32_t, std::string> added_texts, normalized_texts;
  std::vector<bool> special;  // by id; as long as the vocabulary
  TokenIds prefix, suffix;
  std::int32_t bos = -1, eos = -1;

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  TokenText token_text;
  std::unique_ptr<AddedTokens> added_raw, added_normalized;  // found before and after normalising

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace slideway
