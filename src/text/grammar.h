// Grammar: what an answer may still become, token by token, so that it ends as JSON, or as JSON of a schema.
//
//   GrammarCompiler compiler(tokenizer, config.vocab_size, end_ids);
//   GrammarState state(compiler.json_schema(R"({"type":"object", …})"));
//   state.mask(allowed);            // before a token is drawn: the others' logits become −∞
//   state.accept(token);            // after
//
// A schema that would not be kept to the letter is refused, never loosened: a keyword, a format or a combination that
// the grammar library passes over is an error that names it.
//
// Shapes   masks: one bit a token, token t is bit t % 32 of word t / 32, [⌈V / 32⌉]
// Threads  GrammarCompiler and Grammar: const calls from any number of threads; GrammarState: one at a time
// Errors   invalid_input: not JSON, not a schema, nothing can satisfy it; unsupported: names what is not
// Source   xgrammar
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace slideway {

class Grammar;  // compiled for one tokenizer

class GrammarCompiler {
 public:
  // vocab_size: the model's V, which may be larger than the tokenizer's. end_ids: tokens that may follow a whole answer.
  GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocab_size, std::span<const std::int32_t> end_ids);
  ~GrammarCompiler();

  std::shared_ptr<const Grammar> json_schema(std::string_view schema) const;
  std::shared_ptr<const Grammar> json_object() const;  // any object

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<const Grammar> grammar);
  ~GrammarState();

  bool mask(std::span<std::uint32_t> allowed);  // false: no token may come
  bool accept(std::int32_t token);              // false, and nothing changes: the token may not come here
  bool ended() const;                           // an end token has been accepted

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace slideway
