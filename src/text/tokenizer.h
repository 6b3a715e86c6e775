// Tokenizer: byte-level BPE (and what else the files of the supported families say), text to ids and back.
//
// Everything is read from the file: patterns, normaliser, added and special tokens, the template that prepends BOS. An
// unknown kind of any part is an error that names it, never a default.
//
// The way of a text: added tokens are found in it (added_tokens.h); what lies between them is normalised (normalize.h),
// cut into words (pretokenize.h, pattern.h), and each word's characters are merged (bpe.h). A GGUF file's metadata is
// first written as a tokenizer.json (tokenizer_gguf.h), so there is one way in.
//
// Text      UTF-8. Bytes that are not become U+FFFD before anything else, one for each maximal run that begins a
//           character; ids are those of the repaired text.
// Threads   const calls from any number of threads; each keeps its own word cache
// Errors    not_found, corrupt, unsupported, with file and field; invalid_input for a text of 2 GiB or more
// Source    tokenizers (Hugging Face) file format; GGUF "tokenizer.ggml.*" metadata
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
  bool add_special_tokens = true;    // what the file's post-processor prepends and appends (BOS, EOS)
  bool parse_special_tokens = true;  // text that spells an added token becomes it
};

class Tokenizer {
 public:
  struct Parts;  // tokenizer_parts.h, for this class's own sources

  // A folder with tokenizer.json, that file itself, or a .gguf file (or folder with one). tokenizer_config.json beside
  // the file names BOS and EOS; where it says add_bos_token or add_eos_token, these replace the file's template, as
  // transformers has it.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& path);
  static std::unique_ptr<Tokenizer> from_gguf(const GgufFile& gguf);
  // The text of a tokenizer.json and of a tokenizer_config.json (or nothing); where: a name for messages.
  static std::unique_ptr<Tokenizer> from_json(std::string json, std::string config = {},
                                              const std::string& where = "tokenizer.json");
  ~Tokenizer();

  TokenIds encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Rendered chat: the template wrote its own BOS, so nothing is added. The pieces are one text: words and merges run
  // across their borders, so that ids equal those of the whole text wherever no literal piece spells an added token.
  // trained (if not null) gets one flag a token: that of the piece in which its first byte lies.
  TokenIds encode(std::span<const TextPiece> pieces, std::vector<bool>* trained = nullptr) const;

  // Bytes that a token stands for: parts of characters are possible. Special tokens give their text; an id without a
  // token gives nothing.
  std::string token_bytes(std::int32_t id) const;
  // Invalid UTF-8 becomes U+FFFD, as tokenizers' decode does. (One difference: in a run of byte tokens such as <0xE2>,
  // valid characters are kept when a later byte of the run is wrong, so that a stream need not wait for its end.)
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const;

  std::int32_t vocab_size() const;  // the largest id + 1
  bool is_special(std::int32_t id) const;
  std::int32_t bos_token_id() const;                 // −1: none
  std::int32_t eos_token_id() const;                 // −1: none
  std::int32_t id_of(std::string_view token) const;  // −1: no such token
  std::string token(std::int32_t id) const;          // as the file spells it
  // tokenizer.json's and tokenizer_config.json's text, for saving a model: those that were read (the second perhaps
  // empty), or those that GGUF's metadata became, with the chat template in the second.
  const std::string& to_json() const;
  const std::string& config_json() const;

 private:
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  friend class StreamDecoder;
  std::unique_ptr<Parts> parts_;
};

// Text of a growing sequence of tokens, never half a character: bytes wait until their character is whole. What push
// and finish return, joined, is decode of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  std::string push(std::int32_t id);  // the new text, perhaps empty
  std::string finish();               // what still waits, invalid bytes as U+FFFD; then a new text begins

 private:
  std::string take_whole_characters();
  std::string trim_start(std::string text);
  std::string replacement_of(std::size_t bytes) const;

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool first_ = true;        // no token yet
  std::size_t trimmed_ = 0;  // marks that were taken from the start of the text
  bool trimming_ = true;
  std::string waiting_;  // the beginning of a character
};

}  // namespace slideway
