// Tokenizer: byte-level BPE (and what else the files of the supported families say), text to ids and back.
//
// Everything is read from the file: pattern, normaliser, added and special tokens, the template that prepends BOS. An
// unknown kind of any part is an error that names it, never a default.
//
// Threads  const calls from any number of threads
// Errors   not_found, corrupt, unsupported, with file and field
// Source   tokenizers (Hugging Face) file format; GGUF "tokenizer.ggml.*" metadata
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slideway {

class GgufFile;
using TokenIds = std::vector<std::int32_t>;

// A piece of rendered chat. Literal text came from a user, tool or system message and never becomes a control token;
// text that the template itself wrote does.
struct TextPiece {
  std::string text;
  bool literal = false;
  bool trained = false;  // inside the template's generation block
};

struct EncodeOptions {
  bool add_special_tokens = true;   // what the file's post-processor prepends and appends (BOS, EOS)
  bool parse_special_tokens = true; // text that spells an added token becomes it
};

class Tokenizer {
 public:
  // A folder with tokenizer.json, that file itself, or a .gguf file (or folder with one).
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& path);
  static std::unique_ptr<Tokenizer> from_gguf(const GgufFile& gguf);
  virtual ~Tokenizer() = default;

  virtual TokenIds encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // Rendered chat: the template wrote its own BOS, so nothing is added. trained (if not null) gets one flag a token.
  virtual TokenIds encode(std::span<const TextPiece> pieces, std::vector<bool>* trained = nullptr) const = 0;

  // Bytes that a token stands for: parts of characters are possible. Special tokens give their text.
  virtual std::string token_bytes(std::int32_t id) const = 0;
  // Invalid UTF-8 becomes U+FFFD, as tokenizers' decode does.
  virtual std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const = 0;

  virtual std::int32_t vocab_size() const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  virtual std::int32_t bos_token_id() const = 0;  // −1: none
  virtual std::int32_t eos_token_id() const = 0;  // −1: none
  virtual std::int32_t id_of(std::string_view token) const = 0;  // −1: no such token
  virtual std::string token(std::int32_t id) const = 0;          // as the file spells it
  // tokenizer.json's text, for saving a model that came from GGUF.
  virtual std::string to_json() const = 0;
};

// Text of a growing sequence of tokens, never half a character: bytes wait until their character is whole.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string push(std::int32_t id);  // the new text, perhaps empty
  std::string finish();               // what still waits, invalid bytes as U+FFFD

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::string waiting_;
};

}  // namespace slideway
