#include "text/tokenizer_json.h"

#include <functional>

#include "core/error.h"
#include "core/log.h"
#include "text/json_fields.h"

namespace slideway {

struct TokenizerJson::Document {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  std::string where;
};

namespace {

[[noreturn]] void refuse_kind(const JsonField& field, std::string_view kind, const char* known) {
  fail(ErrorKind::unsupported, field.path(), ": the kind ", kind, " is not supported; known: ", known);
}

// Calls take for the object, or for each member of a Sequence, in order. list: how this sequence calls its members.
void for_each_step(const JsonField& field, const char* list,
                   const std::function<void(const JsonField&)>& take) {
  if (field.at("type").text() != "Sequence") return take(field);
  field.only({"type", list});
  const JsonField members = field.at(list);
  std::size_t index = 0;
  for (const auto member : members.array()) for_each_step(members.item(member, index++), list, take);
}

PatternSpec read_pattern(const JsonField& field) {
  field.only({"String", "Regex"});
  if (const auto text = field.find("String")) return {std::string(text->text()), false};
  return {std::string(field.at("Regex").text()), true};
}

std::string read_character(const JsonField& field) {
  const std::string_view text = field.text();
  std::size_t characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  if (characters != 1) fail(ErrorKind::corrupt, field.path(), ": expected one character, found ", text);
  return std::string(text);
}

NormalizerStep read_normalizer(const JsonField& field) {
  const std::string_view kind = field.at("type").text();
  if (kind == "Replace") {
    field.only({"type", "pattern", "content"});
    return {NormalizerStep::replace, read_pattern(field.at("pattern")),
            std::string(field.at("content").text())};
  }
  if (kind == "Prepend") {
    field.only({"type", "prepend"});
    return {.kind = NormalizerStep::prepend, .content = std::string(field.at("prepend").text())};
  }
  if (kind == "Strip") {
    field.only({"type", "strip_left", "strip_right"});
    return {.kind = NormalizerStep::strip,
            .left = field.at("strip_left").boolean(),
            .right = field.at("strip_right").boolean()};
  }
  field.only({"type"});
  if (kind == "NFC") return {.kind = NormalizerStep::nfc};
  if (kind == "NFD") return {.kind = NormalizerStep::nfd};
  if (kind == "NFKC") return {.kind = NormalizerStep::nfkc};
  if (kind == "NFKD") return {.kind = NormalizerStep::nfkd};
  if (kind == "Lowercase") return {.kind = NormalizerStep::lowercase};
  refuse_kind(field, kind, "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence");
}

SplitBehavior read_behavior(const JsonField& field) {
  const std::string_view name = field.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  refuse_kind(field, name, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

// Older files say add_prefix_space where newer ones have a scheme.
PrependScheme read_prepend_scheme(const JsonField& field) {
  const auto scheme = field.find("prepend_scheme");
  if (!scheme)
    return field.boolean_or("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  if (scheme->text() == "always") return PrependScheme::always;
  if (scheme->text() == "first") return PrependScheme::first;
  if (scheme->text() == "never") return PrependScheme::never;
  refuse_kind(*scheme, scheme->text(), "always, first, never");
}

PreTokenizerStep read_pre_tokenizer(const JsonField& field) {
  const std::string_view kind = field.at("type").text();
  if (kind == "Split") {
    field.only({"type", "pattern", "behavior", "invert"});
    return {.kind = PreTokenizerStep::split,
            .pattern = read_pattern(field.at("pattern")),
            .behavior = read_behavior(field.at("behavior")),
            .invert = field.at("invert").boolean()};
  }
  if (kind == "ByteLevel") {
    field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return {.kind = PreTokenizerStep::byte_level,
            .add_prefix_space = field.at("add_prefix_space").boolean(),
            .use_regex = field.boolean_or("use_regex", true)};
  }
  if (kind == "Digits") {
    field.only({"type", "individual_digits"});
    return {.kind = PreTokenizerStep::digits, .individual_digits = field.at("individual_digits").boolean()};
  }
  if (kind == "Punctuation") {
    field.only({"type", "behavior"});
    const auto behavior = field.find("behavior");
    return {.kind = PreTokenizerStep::punctuation,
            .behavior = behavior ? read_behavior(*behavior) : SplitBehavior::isolated};
  }
  if (kind == "Metaspace") {
    field.only({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    return {.kind = PreTokenizerStep::metaspace,
            .replacement = read_character(field.at("replacement")),
            .prepend_scheme = read_prepend_scheme(field),
            .split_words = field.boolean_or("split", true)};
  }
  refuse_kind(field, kind, "ByteLevel, Digits, Metaspace, Punctuation, Split, Sequence");
}

DecoderStep read_decoder(const JsonField& field) {
  const std::string_view kind = field.at("type").text();
  if (kind == "ByteLevel") {
    field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return {.kind = DecoderStep::byte_level};
  }
  if (kind == "ByteFallback" || kind == "Fuse") {
    field.only({"type"});
    return {.kind = kind == "Fuse" ? DecoderStep::fuse : DecoderStep::byte_fallback};
  }
  if (kind == "Replace") {
    field.only({"type", "pattern", "content"});
    const PatternSpec pattern = read_pattern(field.at("pattern"));
    if (pattern.is_regex) refuse_kind(field.at("pattern"), "Regex", "String");
    return {.kind = DecoderStep::replace,
            .pattern = pattern.text,
            .content = std::string(field.at("content").text())};
  }
  if (kind == "Strip") {
    field.only({"type", "content", "start", "stop"});
    const std::int64_t start = field.at("start").integer(), stop = field.at("stop").integer();
    if (start < 0 || stop < 0)
      fail(ErrorKind::corrupt, field.path(), ": start and stop must not be negative");
    return {.kind = DecoderStep::strip,
            .content = read_character(field.at("content")),
            .start = static_cast<std::size_t>(start),
            .stop = static_cast<std::size_t>(stop)};
  }
  if (kind == "Metaspace") {
    field.only({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
    return {.kind = DecoderStep::metaspace,
            .content = read_character(field.at("replacement")),
            .drop_first = read_prepend_scheme(field) != PrependScheme::never};
  }
  refuse_kind(field, kind, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip, Sequence");
}

std::int32_t read_id(const JsonField& field) {
  const std::int64_t id = field.integer();
  if (id < 0 || id > INT32_MAX) fail(ErrorKind::corrupt, field.path(), ": ", id, " is no token id");
  return static_cast<std::int32_t>(id);
}

// A template's "single" form: what stands before and after sequence A.
void read_template(const JsonField& field, TokenizerSpec& spec) {
  field.only({"type", "single", "pair", "special_tokens"});
  const JsonField single = field.at("single"), tokens = field.at("special_tokens");
  std::vector<std::int32_t> before, after;
  bool seen = false;
  std::size_t index = 0;
  for (const auto element : single.array()) {
    const JsonField item = single.item(element, index++);
    item.only({"Sequence", "SpecialToken"});
    if (const auto sequence = item.find("Sequence")) {
      if (seen || sequence->at("id").text() != "A") {
        fail(ErrorKind::unsupported, item.path(), ": expected one sequence, named A");
      }
      seen = true;
      continue;
    }
    const std::string name(item.at("SpecialToken").at("id").text());
    const JsonField ids = tokens.at(name.c_str()).at("ids");
    std::size_t number = 0;
    for (const auto id : ids.array()) (seen ? after : before).push_back(read_id(ids.item(id, number++)));
  }
  if (!seen) fail(ErrorKind::unsupported, single.path(), ": the text itself (Sequence A) is not in it");
  spec.prefix.insert(spec.prefix.begin(), before.begin(), before.end());
  spec.suffix.insert(spec.suffix.end(), after.begin(), after.end());
}

void read_post_processor(const JsonField& field, TokenizerSpec& spec) {
  for_each_step(field, "processors", [&](const JsonField& step) {
    const std::string_view kind = step.at("type").text();
    if (kind == "TemplateProcessing") return read_template(step, spec);
    if (kind != "ByteLevel") refuse_kind(step, kind, "ByteLevel, TemplateProcessing, Sequence");
  });
}

std::vector<AddedToken> read_added_tokens(const JsonField& field) {
  std::vector<AddedToken> tokens;
  for (const auto element : field.array()) {
    const JsonField item = field.item(element, tokens.size());
    item.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    tokens.push_back({.content = std::string(item.at("content").text()),
                      .id = read_id(item.at("id")),
                      .single_word = item.boolean_or("single_word", false),
                      .lstrip = item.boolean_or("lstrip", false),
                      .rstrip = item.boolean_or("rstrip", false),
                      .normalized = item.boolean_or("normalized", true),
                      .special = item.boolean_or("special", false)});
  }
  return tokens;
}

void read_merges(const JsonField& field, BpeSpec& bpe) {
  const auto merges = field.array();
  bpe.merges.reserve(merges.size());
  for (const auto element : merges) {
    std::string_view text;
    simdjson::dom::array pair;
    if (element.get(text) == simdjson::SUCCESS) {
      const std::size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos) {
        bpe.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
        continue;
      }
    } else if (element.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
      std::string_view left, right;
      if (pair.at(0).get(left) == simdjson::SUCCESS && pair.at(1).get(right) == simdjson::SUCCESS) {
        bpe.merges.emplace_back(left, right);
        continue;
      }
    }
    fail(ErrorKind::corrupt, field.path(), "[", bpe.merges.size(), "]: expected two tokens, found ",
         simdjson::minify(element));
  }
}

void read_bpe(const JsonField& field, BpeSpec& bpe) {
  if (const auto kind = field.find("type"); kind && kind->text() != "BPE")
    refuse_kind(field, kind->text(), "BPE");
  field.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!field.text_or(key, "").empty()) {
      fail(ErrorKind::unsupported, field.path(), ".", key, ": marks of this kind are not supported");
    }
  }
  if (const auto dropout = field.find("dropout")) {
    double chance = 0;
    if (dropout->json().get(chance) != simdjson::SUCCESS || chance != 0) {
      fail(ErrorKind::unsupported, dropout->path(), ": merges left out at random are not supported");
    }
  }
  bpe.unk_token = field.text_or("unk_token", "");
  bpe.fuse_unk = field.boolean_or("fuse_unk", false);
  bpe.byte_fallback = field.boolean_or("byte_fallback", false);
  bpe.ignore_merges = field.boolean_or("ignore_merges", false);

  const JsonField vocabulary = field.at("vocab");
  const auto tokens = vocabulary.object();
  bpe.vocabulary.reserve(tokens.size(), 8 * tokens.size());
  for (const auto [token, value] : tokens) {
    std::int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      fail(ErrorKind::corrupt, vocabulary.path(), ": the id of ", token, " is ", simdjson::minify(value));
    }
    bpe.vocabulary.add(token, static_cast<std::int32_t>(id));
  }
  read_merges(field.at("merges"), bpe);
}

void warn_of_unknown_fields(const JsonField& root) {
  constexpr std::string_view known[] = {"version",        "truncation", "padding",
                                        "added_tokens",   "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder",    "model"};
  for (const auto [key, value] : root.object()) {
    if (std::find(std::begin(known), std::end(known), key) == std::end(known) && !value.is_null()) {
      log(LogLevel::warning, root.path(), ": the field ", key, " is not known and left aside");
    }
  }
}

}  // namespace

TokenizerJson::TokenizerJson(std::string_view text, std::string where)
    : document_(std::make_unique<Document>()) {
  document_->where = std::move(where);
  if (const auto error = document_->parser.parse(text.data(), text.size()).get(document_->root)) {
    fail(ErrorKind::corrupt, document_->where, ": no JSON: ", simdjson::error_message(error));
  }
}

TokenizerJson::~TokenizerJson() = default;

TokenizerSpec TokenizerJson::read() {
  const JsonField root(document_->root, document_->where);
  TokenizerSpec spec;
  if (const auto version = root.find("version"); version && version->text() != "1.0") {
    fail(ErrorKind::unsupported, version->path(), ": expected 1.0, found ", version->text());
  }
  warn_of_unknown_fields(root);
  if (const auto field = root.find("added_tokens")) spec.added_tokens = read_added_tokens(*field);
  if (const auto field = root.find("normalizer")) {
    for_each_step(*field, "normalizers",
                  [&](const JsonField& s) { spec.normalizer.push_back(read_normalizer(s)); });
  }
  if (const auto field = root.find("pre_tokenizer")) {
    for_each_step(*field, "pretokenizers",
                  [&](const JsonField& s) { spec.pre_tokenizer.push_back(read_pre_tokenizer(s)); });
  }
  if (const auto field = root.find("post_processor")) read_post_processor(*field, spec);
  for_each_step(root.at("decoder"), "decoders",
                [&](const JsonField& s) { spec.decoder.push_back(read_decoder(s)); });
  read_bpe(root.at("model"), spec.bpe);
  return spec;
}

}  // namespace slideway
