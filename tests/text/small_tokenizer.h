// Tokenizers small enough to reason about: a byte alphabet or a few characters, a few merges, made in the test.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace slideway {

using SmallJson = nlohmann::ordered_json;

// A tokenizer.json that the test may change before it is read. Tokens get ids in the order of the vocabulary.
struct SmallTokenizer {
  SmallJson json = SmallJson::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {}, "merges": []}})");
  std::string config;

  // All bytes (ids 0 to 255), then what the merges make. "Ġ t" is a space and a t.
  static SmallTokenizer of_bytes(const std::vector<std::string>& merges = {}) {
    SmallTokenizer small;
    for (int byte = 0; byte < 256; ++byte) {
      std::string spelled;
      byte_alphabet::append_spelled(spelled, std::string(1, static_cast<char>(byte)));
      small.add(spelled);
    }
    small.add_merges(merges);
    return small;
  }

  // These characters and no others, the way of SentencePiece: no byte alphabet, text is one word.
  static SmallTokenizer of_characters(const std::vector<std::string>& tokens,
                                      const std::vector<std::string>& merges = {}) {
    SmallTokenizer small;
    small.json["pre_tokenizer"] = nullptr;
    small.json["decoder"] = {{"type", "Fuse"}};
    for (const std::string& token : tokens) small.add(token);
    small.add_merges(merges);
    return small;
  }

  void add(const std::string& token) { json["model"]["vocab"].emplace(token, json["model"]["vocab"].size()); }
  void add_merges(const std::vector<std::string>& merges) {
    for (const std::string& merge : merges) {
      json["model"]["merges"].push_back(merge);
      const std::size_t space = merge.find(' ');
      add(merge.substr(0, space) + merge.substr(space + 1));
    }
  }
  // Beyond the vocabulary; returns its id.
  std::int32_t add_token(const std::string& content, SmallJson flags = {}) {
    const std::size_t id = json["model"]["vocab"].size() + json["added_tokens"].size();
    SmallJson token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                       {"rstrip", false}, {"normalized", false}, {"special", true}};
    if (!flags.is_null()) token.update(flags);
    json["added_tokens"].push_back(token);
    return static_cast<std::int32_t>(id);
  }

  std::unique_ptr<Tokenizer> make() const { return Tokenizer::from_json(json.dump(), config); }
};

// What each token of a text covers, for messages that can be read: "a|b c|".
inline std::string cut(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  std::string out;
  for (const std::int32_t id : tokenizer.encode(text, options)) out += tokenizer.token_bytes(id) + "|";
  return out;
}

}  // namespace slideway
