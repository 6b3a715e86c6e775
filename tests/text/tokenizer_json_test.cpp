// What is not understood is refused, by the name of the file, the field and the kind.
#include <gtest/gtest.h>

#include <functional>

#include "small_tokenizer.h"
#include "support/expect_error.h"

namespace slideway {
namespace {

struct Change {
  const char* name;
  std::function<void(SmallJson&)> make;
  ErrorKind kind;
  std::initializer_list<std::string> texts;
};

SmallJson parsed(const char* text) {
  return SmallJson::parse(text);
}

const Change kChanges[] = {
    {"ModelKind",
     [](SmallJson& j) { j["model"]["type"] = "Unigram"; },
     ErrorKind::unsupported,
     {"tokenizer.json: model", "Unigram", "BPE"}},
    {"Version", [](SmallJson& j) { j["version"] = "2.0"; }, ErrorKind::unsupported, {"version", "2.0"}},
    {"NormalizerKind",
     [](SmallJson& j) {
       j["normalizer"] = parsed(R"({"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "BertNormalizer"}]})");
     },
     ErrorKind::unsupported,
     {"normalizer.normalizers[1]", "BertNormalizer"}},
    {"PreTokenizerKind",
     [](SmallJson& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; },
     ErrorKind::unsupported,
     {"pre_tokenizer", "Whitespace"}},
    {"PreTokenizerField",
     [](SmallJson& j) { j["pre_tokenizer"]["novelty"] = true; },
     ErrorKind::unsupported,
     {"pre_tokenizer", "novelty"}},
    {"SplitBehavior",
     [](SmallJson& j) {
       j["pre_tokenizer"] = parsed(R"({"type": "Split", "pattern": {"String": "a"},
        "behavior": "Shredded", "invert": false})");
     },
     ErrorKind::unsupported,
     {"pre_tokenizer.behavior", "Shredded"}},
    {"Regex",
     [](SmallJson& j) {
       j["pre_tokenizer"] = parsed(R"({"type": "Split", "pattern": {"Regex": "\\w+"},
        "behavior": "Isolated", "invert": false})");
     },
     ErrorKind::unsupported,
     {"pre_tokenizer Split", "\\w"}},
    {"PostProcessorKind",
     [](SmallJson& j) { j["post_processor"] = {{"type", "RobertaProcessing"}}; },
     ErrorKind::unsupported,
     {"post_processor", "RobertaProcessing"}},
    {"DecoderKind",
     [](SmallJson& j) { j["decoder"] = {{"type", "WordPiece"}}; },
     ErrorKind::unsupported,
     {"decoder", "WordPiece"}},
    {"NoDecoder", [](SmallJson& j) { j["decoder"] = nullptr; }, ErrorKind::corrupt, {"decoder is missing"}},
    {"DecoderOrder",
     [](SmallJson& j) {
       j["decoder"] = parsed(R"({"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "ByteFallback"}]})");
     },
     ErrorKind::unsupported,
     {"ByteFallback after Fuse"}},
    {"Dropout", [](SmallJson& j) { j["model"]["dropout"] = 0.1; }, ErrorKind::unsupported, {"model.dropout"}},
    {"WordSuffix",
     [](SmallJson& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
     ErrorKind::unsupported,
     {"model.end_of_word_suffix"}},
    {"UnknownModelField",
     [](SmallJson& j) { j["model"]["novelty"] = 1; },
     ErrorKind::unsupported,
     {"model", "novelty"}},
    {"NoVocabulary",
     [](SmallJson& j) { j["model"].erase("vocab"); },
     ErrorKind::corrupt,
     {"vocab is missing"}},
    {"IdTwice",
     [](SmallJson& j) { j["model"]["vocab"]["twice"] = 97; },
     ErrorKind::corrupt,
     {"id 97", "twice"}},
    {"NegativeId", [](SmallJson& j) { j["model"]["vocab"]["bad"] = -1; }, ErrorKind::corrupt, {"bad", "-1"}},
    {"HugeId",
     [](SmallJson& j) { j["model"]["vocab"]["bad"] = 2000000000; },
     ErrorKind::corrupt,
     {"bad", "2000000000"}},
    {"MergeOfNothing",
     [](SmallJson& j) { j["model"]["merges"] = {"a zz"}; },
     ErrorKind::corrupt,
     {"merge 0", "zz"}},
    {"MergeOfThree",
     [](SmallJson& j) { j["model"]["merges"] = {"a b c"}; },
     ErrorKind::corrupt,
     {"model.merges[0]", "a b c"}},
    {"MergeOfNumbers",
     [](SmallJson& j) { j["model"]["merges"] = {{1, 2}}; },
     ErrorKind::corrupt,
     {"model.merges[0]"}},
    {"AddedTokenClash",
     [](SmallJson& j) { j["added_tokens"] = {{{"id", 5}, {"content", "<x>"}}}; },
     ErrorKind::corrupt,
     {"<x>", "id 5"}},
    {"AddedTokenField",
     [](SmallJson& j) { j["added_tokens"] = {{{"id", 300}, {"content", "<x>"}, {"zap", true}}}; },
     ErrorKind::unsupported,
     {"added_tokens[0]", "zap"}},
    {"TemplateOfUnknown",
     [](SmallJson& j) {
       j["post_processor"] = parsed(R"({"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [999], "tokens": ["<s>"]}}})");
     },
     ErrorKind::corrupt,
     {"post_processor", "999"}},
    {"WrongType",
     [](SmallJson& j) { j["pre_tokenizer"]["add_prefix_space"] = "no"; },
     ErrorKind::corrupt,
     {"pre_tokenizer.add_prefix_space", "true or false", "\"no\""}},
};

class Refusals : public testing::TestWithParam<Change> {};

TEST_P(Refusals, NameTheFieldAndWhatStandsThere) {
  SmallTokenizer small = SmallTokenizer::of_bytes();
  ASSERT_NO_THROW(small.make());
  GetParam().make(small.json);
  expect_error(GetParam().kind, GetParam().texts, [&] { small.make(); });
}

INSTANTIATE_TEST_SUITE_P(TokenizerJson, Refusals, testing::ValuesIn(kChanges),
                         [](const auto& info) { return info.param.name; });

TEST(TokenizerJson, RefusesWhatIsNoJsonAndWrongConfigs) {
  expect_error(ErrorKind::corrupt, {"f.json", "JSON"}, [] { Tokenizer::from_json("{", {}, "f.json"); });
  SmallTokenizer small = SmallTokenizer::of_bytes();
  small.config = R"({"bos_token": "<absent>"})";
  expect_error(ErrorKind::corrupt, {"tokenizer_config.json", "bos_token", "<absent>"}, [&] { small.make(); });
}

TEST(TokenizerJson, SetsTruncationAndPaddingAside) {
  SmallTokenizer small = SmallTokenizer::of_bytes();
  small.json["truncation"] = {
      {"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Right"}};
  small.json["padding"] = {{"strategy", {{"Fixed", 8}}}, {"pad_id", 0}};
  EXPECT_EQ(small.make()->encode("abc").size(), 3u);
}

TEST(TokenizerJson, KeepsItsTextForSaving) {
  const SmallTokenizer small = SmallTokenizer::of_bytes({"a b"});
  EXPECT_EQ(small.make()->to_json(), small.json.dump());
}

}  // namespace
}  // namespace slideway
