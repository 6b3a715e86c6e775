#include "text/tokenizer_gguf.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace slideway {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Letters with case, but for blocks that the model's makers left out of their list.
constexpr std::string_view kDeepSeekWord =
    R"(\s?(?:(?![\x{2D00}-\x{2D2D}\x{A790}-\x{A7FA}\x{AB30}-\x{AB68}\x{10570}-\x{105BC}\x{16E40}-\x{16E7F}\x{1D400}-\x{1D7CB}\x{1DF00}-\x{1DF1E}])[\p{Lu}\p{Ll}\p{Lt}])+)";
constexpr std::string_view kDeepSeekSigns =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepSeekEastAsian = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

// What a name in tokenizer.ggml.pre stands for: patterns one after another (each match a word), then perhaps single
// digits, then bytes with or without GPT-2's pattern.
struct PreRow {
  std::string_view name;
  std::vector<std::string_view> splits;
  bool digits = false;
  bool gpt2_pattern = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

const std::vector<PreRow>& pre_rows() {
  static const std::vector<PreRow> rows = {
      {.name = "llama-bpe", .splits = {kLlama3}, .ignore_merges = true, .add_bos = true},
      {.name = "llama3", .splits = {kLlama3}, .ignore_merges = true, .add_bos = true},
      {.name = "llama-v3", .splits = {kLlama3}, .ignore_merges = true, .add_bos = true},
      {.name = "smaug-bpe", .splits = {kLlama3}},
      {.name = "smollm", .splits = {}, .digits = true, .gpt2_pattern = true},
      {.name = "starcoder", .splits = {}, .digits = true, .gpt2_pattern = true},
      {.name = "refact", .splits = {}, .digits = true, .gpt2_pattern = true},
      {.name = "gpt-2", .splits = {}, .gpt2_pattern = true},
      {.name = "qwen2", .splits = {kQwen2}, .nfc = true},
      {.name = "deepseek-r1-qwen", .splits = {kQwen2}, .nfc = true},
      {.name = "deepseek-llm",
       .splits = {R"([\r\n])", kDeepSeekWord, kDeepSeekSigns, R"(\s+$)", kDeepSeekEastAsian, R"(\p{N}+)"}},
      {.name = "deepseek-coder",
       .splits = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekEastAsian},
       .digits = true},
      {.name = "deepseek-v3",
       .splits = {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepSeek3}},
      {.name = "tekken", .splits = {kTekken}, .ignore_merges = true, .add_bos = true},
      // What converters wrote for models that they could not tell apart.
      {.name = "default", .splits = {R"([\p{P}$+<=>^~|]+)", kGpt2Pattern, R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
  };
  return rows;
}

const PreRow& find_pre_row(const GgufFile& gguf) {
  const std::string name = gguf.text("tokenizer.ggml.pre");
  for (const PreRow& row : pre_rows()) {
    if (row.name == name) return row;
  }
  std::string known;
  for (const PreRow& row : pre_rows()) known += (known.empty() ? "" : ", ") + std::string(row.name);
  fail(ErrorKind::unsupported, gguf.path().string(), ": tokenizer.ggml.pre is ", name, "; known: ", known,
       ". Use the model's original folder with its tokenizer.json");
}

// ---- writing JSON

void append_text(std::string& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += digits[static_cast<std::size_t>(c >> 4)];
      out += digits[static_cast<std::size_t>(c & 15)];
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string json_text(std::string_view text) {
  std::string out;
  append_text(out, text);
  return out;
}

const char* boolean(bool value) {
  return value ? "true" : "false";
}

std::string pre_tokenizer_json(const PreRow& row) {
  std::string out = R"({"type":"Sequence","pretokenizers":[)";
  for (const std::string_view split : row.splits) {
    out += R"({"type":"Split","pattern":{"Regex":)" + json_text(split) +
           R"(},"behavior":"Isolated","invert":false},)";
  }
  if (row.digits) out += R"({"type":"Digits","individual_digits":true},)";
  out += R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)";
  return out + boolean(row.gpt2_pattern) + "}]}";
}

// ---- what the file holds

enum TokenType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Metadata {
  const GgufFile& gguf;
  std::vector<std::string> tokens;
  std::vector<std::int64_t> types;  // a TokenType each

  explicit Metadata(const GgufFile& gguf) : gguf(gguf), tokens(texts("tokenizer.ggml.tokens")) {
    if (const GgufValue* value = gguf.find("tokenizer.ggml.token_type")) {
      if (const auto* found = std::get_if<std::vector<std::int64_t>>(value)) types = *found;
    }
    if (types.size() != tokens.size()) {
      fail(ErrorKind::corrupt, gguf.path().string(), ": tokenizer.ggml.token_type has ", types.size(),
           " entries, tokenizer.ggml.tokens has ", tokens.size());
    }
  }

  std::vector<std::string> texts(const char* key) const {
    const GgufValue* value = gguf.find(key);
    if (value == nullptr) fail(ErrorKind::not_found, gguf.path().string(), ": ", key, " is missing");
    if (const auto* found = std::get_if<std::vector<std::string>>(value)) return *found;
    fail(ErrorKind::corrupt, gguf.path().string(), ": ", key, " is no array of strings");
  }

  bool flag(const char* key, bool absent) const {
    const GgufValue* value = gguf.find(key);
    if (value == nullptr) return absent;
    if (const bool* found = std::get_if<bool>(value)) return *found;
    fail(ErrorKind::corrupt, gguf.path().string(), ": ", key, " is not true or false");
  }

  std::size_t id(const char* key) const {
    const std::int64_t id = gguf.integer(key);
    if (id < 0 || id >= static_cast<std::int64_t>(tokens.size())) {
      fail(ErrorKind::corrupt, gguf.path().string(), ": ", key, " is ", id, ", but there are ", tokens.size(),
           " tokens");
    }
    return static_cast<std::size_t>(id);
  }

  bool is_added(std::size_t id) const {
    return types[id] == control || types[id] == user_defined || types[id] == unknown;
  }
};

std::string added_tokens_json(const Metadata& metadata) {
  std::string out = "[";
  for (std::size_t id = 0; id < metadata.tokens.size(); ++id) {
    if (!metadata.is_added(id)) continue;
    out += (out.size() > 1 ? ",\n" : "\n") + (R"({"id":)" + std::to_string(id)) + R"(,"content":)";
    append_text(out, metadata.tokens[id]);
    out += R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)";
    out += boolean(metadata.types[id] != user_defined);
    out += '}';
  }
  return out + "]";
}

std::string vocabulary_json(const Metadata& metadata) {
  std::string out = "{";
  for (std::size_t id = 0; id < metadata.tokens.size(); ++id) {
    out += id > 0 ? ",\n" : "\n";
    append_text(out, metadata.tokens[id]);
    out += ':' + std::to_string(id);
  }
  return out + "}";
}

std::string merges_json(const std::vector<std::string>& merges) {
  std::string out = "[";
  for (std::size_t i = 0; i < merges.size(); ++i) {
    out += i > 0 ? ",\n" : "\n";
    append_text(out, merges[i]);
  }
  return out + "]";
}

std::string template_json(const Metadata& metadata, bool add_bos_if_absent) {
  const bool add_bos = metadata.flag("tokenizer.ggml.add_bos_token", add_bos_if_absent);
  const bool add_eos = metadata.flag("tokenizer.ggml.add_eos_token", false);
  std::string special;
  const auto item = [&](const char* key) {
    const std::size_t id = metadata.id(key);
    const std::string name = json_text(metadata.tokens[id]);
    const std::string entry =
        name + R"(:{"id":)" + name + R"(,"ids":[)" + std::to_string(id) + R"(],"tokens":[)" + name + "]}";
    if (special.find(entry) == special.npos) special += (special.empty() ? "" : ",") + entry;
    return R"({"SpecialToken":{"id":)" + name + R"(,"type_id":0}})";
  };
  std::string around = R"({"Sequence":{"id":"A","type_id":0}})";
  std::string pair = around + R"(,{"Sequence":{"id":"B","type_id":1}})";
  if (add_bos) {
    const std::string bos = item("tokenizer.ggml.bos_token_id");
    around = bos + "," + around;
    pair = bos + "," + pair;
  }
  if (add_eos) {
    const std::string eos = item("tokenizer.ggml.eos_token_id");
    around += "," + eos;
    pair += "," + eos;
  }
  return R"({"type":"TemplateProcessing","single":[)" + around + R"(],"pair":[)" + pair +
         R"(],"special_tokens":{)" + special + "}}";
}

std::string whole_json(const Metadata& metadata, const std::string& normalizer,
                       const std::string& pre_tokenizer, const std::string& post_processor,
                       const std::string& decoder, const std::string& model_fields,
                       const std::vector<std::string>& merges) {
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" +
         added_tokens_json(metadata) + ",\n\"normalizer\":" + normalizer +
         ",\n\"pre_tokenizer\":" + pre_tokenizer + ",\n\"post_processor\":" + post_processor +
         ",\n\"decoder\":" + decoder + ",\n\"model\":{\"type\":\"BPE\",\"dropout\":null," +
         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,)" + model_fields + R"(,"vocab":)" +
         vocabulary_json(metadata) + R"(,"merges":)" + merges_json(merges) + "}}\n";
}

std::string byte_level_json(const Metadata& metadata) {
  const PreRow& row = find_pre_row(metadata.gguf);
  const std::string fields =
      std::string(R"("unk_token":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":)") +
      boolean(row.ignore_merges);
  return whole_json(metadata, row.nfc ? R"({"type":"NFC"})" : "null", pre_tokenizer_json(row),
                    template_json(metadata, row.add_bos),
                    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})",
                    fields, metadata.texts("tokenizer.ggml.merges"));
}

// SentencePiece files give each token a score instead of merges: of neighbours, those are joined whose token scores
// highest. So each way to cut a token in two is a merge, ranked by the token's score.
std::vector<std::string> merges_by_score(const Metadata& metadata) {
  const GgufValue* value = metadata.gguf.find("tokenizer.ggml.scores");
  const auto* scores = value != nullptr ? std::get_if<std::vector<double>>(value) : nullptr;
  if (scores == nullptr || scores->size() != metadata.tokens.size()) {
    fail(ErrorKind::corrupt, metadata.gguf.path().string(),
         ": tokenizer.ggml.scores must be one number a token");
  }
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < metadata.tokens.size(); ++id) {
    if (!metadata.is_added(id)) vocabulary.add(metadata.tokens[id], static_cast<std::int32_t>(id));
  }
  struct Merge {
    std::string text;
    double score;
    std::size_t left, right;  // characters
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < metadata.tokens.size(); ++id) {
    const std::string_view token = metadata.tokens[id];
    if (metadata.types[id] != normal || !is_valid_utf8(token)) continue;
    std::vector<std::size_t> ends;
    for (std::size_t at = 0; at < token.size();) {
      next_character(token, at);
      ends.push_back(at);
    }
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
      const std::string_view left = token.substr(0, ends[i]), right = token.substr(ends[i]);
      if (vocabulary.find(left) < 0 || vocabulary.find(right) < 0) continue;
      merges.push_back(
          {std::string(left) + " " + std::string(right), (*scores)[id], i + 1, ends.size() - i - 1});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left, a.right) > std::tie(b.score, b.left, b.right);
  });
  std::vector<std::string> out;
  out.reserve(merges.size());
  for (Merge& merge : merges) out.push_back(std::move(merge.text));
  return out;
}

std::string sentencepiece_json(const Metadata& metadata) {
  const bool prefix = metadata.flag("tokenizer.ggml.add_space_prefix", true);
  const std::string replace = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  const std::string normalizer =
      prefix ? R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)" + replace + "]}"
             : replace;
  const std::string decoder =
      std::string(
          R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)") +
      R"({"type":"ByteFallback"},{"type":"Fuse"})" +
      (prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0}]})" : "]}");
  const bool has_unknown = metadata.gguf.find("tokenizer.ggml.unknown_token_id") != nullptr;
  const std::string unknown =
      has_unknown ? json_text(metadata.tokens[metadata.id("tokenizer.ggml.unknown_token_id")]) : "null";
  return whole_json(
      metadata, normalizer, "null", template_json(metadata, true), decoder,
      "\"unk_token\":" + unknown + R"(,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false)",
      merges_by_score(metadata));
}

}  // namespace

std::string tokenizer_json_of(const GgufFile& gguf) {
  const std::string model = gguf.text("tokenizer.ggml.model");
  if (model == "gpt2") return byte_level_json(Metadata(gguf));
  if (model == "llama") return sentencepiece_json(Metadata(gguf));
  fail(ErrorKind::unsupported, gguf.path().string(), ": tokenizer.ggml.model is ", model,
       "; known: gpt2 (byte-level BPE), llama (SentencePiece BPE)");
}

std::string tokenizer_config_json_of(const GgufFile& gguf) {
  const Metadata metadata(gguf);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [name, key] : kTokens) {
    if (gguf.find(key) != nullptr) config[name] = metadata.tokens[metadata.id(key)];
  }
  const auto chat_template = [&](const char* key) { return gguf.find(key) != nullptr ? gguf.text(key) : ""; };
  const std::string plain = chat_template("tokenizer.chat_template");
  const std::string with_tools = chat_template("tokenizer.chat_template.tool_use");
  if (!with_tools.empty()) {
    config["chat_template"] = {{{"name", "default"}, {"template", plain}},
                               {{"name", "tool_use"}, {"template", with_tools}}};
  } else if (!plain.empty()) {
    config["chat_template"] = plain;
  }
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace slideway
