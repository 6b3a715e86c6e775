// GGUF's tokenizer metadata, written as a tokenizer.json: what the model's makers published before it was converted.
//
// GGUF has no patterns, but names them (tokenizer.ggml.pre); the names known here are those of the families that this
// program runs. An unknown name is refused: a wrong pattern gives other ids than the model was trained on, without any
// error. Token types: control and unknown tokens become special added tokens, user-defined ones added tokens.
//
// Errors  not_found (a key), unsupported (tokenizer.ggml.model, tokenizer.ggml.pre), corrupt
// Source  GGUF specification, "tokenizer"; the published tokenizer.json of each family
#pragma once

#include <string>

namespace slideway {

class GgufFile;

std::string tokenizer_json_of(const GgufFile& gguf);
// tokenizer_config.json: BOS, EOS, unknown and padding token, and the chat template.
std::string tokenizer_config_json_of(const GgufFile& gguf);

}  // namespace slideway
