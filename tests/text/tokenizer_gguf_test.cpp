// GGUF metadata becomes a tokenizer.json: patterns by name, tokens by type, merges given or made from scores.
#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "small_tokenizer.h"
#include "support/expect_error.h"
#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

using Texts = std::vector<std::string>;

// The metadata of a small file, with arrays; a test adds to it or leaves keys out.
class SmallGguf {
 public:
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  GgufBytes more;  // other keys

  void add(const std::string& token, std::int32_t type = 1, float score = 0) {
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }

  std::unique_ptr<Tokenizer> make() {
    more.key("tokenizer.ggml.tokens", 9, array(8, tokens));
    more.key("tokenizer.ggml.token_type", 9, array(5, types));
    if (!merges.empty()) more.key("tokenizer.ggml.merges", 9, array(8, merges));
    more.key("tokenizer.ggml.scores", 9, array(6, scores));
    const TemporaryFolder folder;
    more.write(folder / "m.gguf");
    return Tokenizer::load(folder / "m.gguf");
  }

 private:
  static std::string raw(const std::string& text) { return gguf_string(text); }
  template <class Number>
  static std::string raw(Number number) {
    return raw_bytes(number);
  }
  template <class Item>
  static std::string array(std::uint32_t type, const std::vector<Item>& items) {
    std::string out = raw_bytes(type) + raw_bytes(std::uint64_t(items.size()));
    for (const Item& item : items) out += raw(item);
    return out;
  }
};

SmallGguf of_bytes(const std::string& pre) {
  SmallGguf gguf;
  gguf.more.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    byte_alphabet::append_spelled(spelled, std::string(1, static_cast<char>(byte)));
    gguf.add(spelled);
  }
  for (const char* digits : {"1 2", "12 3", "123 4", "Ġ Ġ", "' s", "' S", "s <", "Ġ a"}) {
    const std::string merge = digits;
    gguf.merges.push_back(merge);
    gguf.add(merge.substr(0, merge.find(' ')) + merge.substr(merge.find(' ') + 1));
  }
  return gguf;
}

std::string cut_by(const std::string& pre, std::string_view text) {
  SmallGguf gguf = of_bytes(pre);
  gguf.more.key("tokenizer.ggml.add_bos_token", 7, std::string(1, '\0'));
  return cut(*gguf.make(), text);
}

TEST(TokenizerGguf, CutsByThePatternThatIsNamed) {
  const char* text = "1234  x  9'S";
  EXPECT_EQ(cut_by("smollm", text), "1|2|3|4| | |x|  |9|'|S|");  // single digits, first of all
  EXPECT_EQ(cut_by("gpt-2", text), "1234| | |x| | |9|'|S|");
  EXPECT_EQ(cut_by("llama-bpe", "1234  x's  9'S"), "123|4| | |x|'s| | |9|'S|");
  EXPECT_EQ(cut_by("qwen2", text), "1|2|3|4| | |x| | |9|'S|");
  EXPECT_EQ(cut_by("deepseek-v3", text), "123|4| | |x|  |9|'S|");
  EXPECT_EQ(cut_by("deepseek-coder", text), "1|2|3|4| | |x|  |9|'|S|");
  EXPECT_EQ(cut_by("deepseek-llm", "1234 ab a"), "1234| a|b| a|");
  EXPECT_EQ(cut_by("tekken", text), "1|2|3|4| | |x| | |9|'S|");
  EXPECT_EQ(cut_by("default", "1234 a<s"), "123|4| a|<|s|");
  EXPECT_EQ(of_bytes("qwen2").make()->encode("e\u0301").size(), 2u) << "NFC comes first";
}

TEST(TokenizerGguf, RefusesANameThatItDoesNotKnow) {
  expect_error(ErrorKind::unsupported,
               {"m.gguf", "tokenizer.ggml.pre", "novel-bpe", "smollm", "tokenizer.json"},
               [] { of_bytes("novel-bpe").make(); });
  expect_error(ErrorKind::unsupported, {"tokenizer.ggml.model", "rwkv"}, [] {
    SmallGguf gguf;
    gguf.more.text("tokenizer.ggml.model", "rwkv");
    gguf.make();
  });
  expect_error(ErrorKind::corrupt, {"tokenizer.ggml.pre"}, [] {
    SmallGguf gguf;
    gguf.more.text("tokenizer.ggml.model", "gpt2");
    gguf.make();
  });
}

TEST(TokenizerGguf, FindsControlAndUserDefinedTokensInText) {
  SmallGguf gguf = of_bytes("smollm");
  gguf.add("<|c|>", 3);
  gguf.add("<u>", 4);
  gguf.add("[PAD]", 5);
  const auto tokenizer = gguf.make();
  EXPECT_EQ(cut(*tokenizer, "<|c|><u>[PAD]"), "<|c|>|<u>|[|P|A|D|]|");
  EXPECT_TRUE(tokenizer->is_special(tokenizer->id_of("<|c|>")));
  EXPECT_FALSE(tokenizer->is_special(tokenizer->id_of("<u>")));
}

TEST(TokenizerGguf, PutsBosAndEosWhereTheFileSays) {
  const auto with = [](const std::string& pre, int add_bos, bool add_eos) {
    SmallGguf gguf = of_bytes(pre);
    gguf.add("<s>", 3);
    gguf.more.u32("tokenizer.ggml.bos_token_id", 264).u32("tokenizer.ggml.eos_token_id", 264);
    if (add_bos >= 0) gguf.more.key("tokenizer.ggml.add_bos_token", 7, add_bos ? "\1" : std::string(1, '\0'));
    if (add_eos) gguf.more.key("tokenizer.ggml.add_eos_token", 7, "\1");
    const auto tokenizer = gguf.make();
    EXPECT_EQ(tokenizer->bos_token_id(), 264);
    EXPECT_EQ(tokenizer->eos_token_id(), 264);
    return cut(*tokenizer, "x");
  };
  EXPECT_EQ(with("smollm", -1, false), "x|");
  EXPECT_EQ(with("smollm", 1, true), "<s>|x|<s>|");
  EXPECT_EQ(with("llama-bpe", -1, false), "<s>|x|") << "where the file does not say, the family does";
  EXPECT_EQ(with("llama-bpe", 0, false), "x|");
}

TEST(TokenizerGguf, MergesSentencePieceTokensByTheirScores) {
  SmallGguf gguf;
  gguf.more.text("tokenizer.ggml.model", "llama");
  gguf.more.u32("tokenizer.ggml.unknown_token_id", 0).u32("tokenizer.ggml.bos_token_id", 1);
  gguf.add("<unk>", 2);
  gguf.add("<s>", 3);
  for (const char* byte : {"<0xC3>", "<0xA9>"}) gguf.add(byte, 6);
  for (const char* token : {"▁", "a", "b", "c"}) gguf.add(token, 1, -100);
  gguf.add("ab", 1, -2);
  gguf.add("bc", 1, -1);
  gguf.add("▁a", 1, -3);
  const auto tokenizer = gguf.make();
  const auto cut_plain = [&](std::string_view text) {
    return cut(*tokenizer, text, {.add_special_tokens = false});
  };
  EXPECT_EQ(cut_plain("abc"), " a|bc|") << "bc scores highest";
  EXPECT_EQ(cut_plain("ab ab"), " |ab| |ab|");
  EXPECT_EQ(tokenizer->encode("é"), (TokenIds{1, 4, 2, 3}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc é ab")), "abc é ab");
}

TEST(TokenizerGguf, RefusesListsThatDoNotFitEachOther) {
  SmallGguf gguf = of_bytes("smollm");
  gguf.types.pop_back();
  expect_error(ErrorKind::corrupt, {"tokenizer.ggml.token_type", "263", "264"}, [&] { gguf.make(); });
  SmallGguf other = of_bytes("smollm");
  other.more.u32("tokenizer.ggml.eos_token_id", 264);
  expect_error(ErrorKind::corrupt, {"tokenizer.ggml.eos_token_id", "264"}, [&] { other.make(); });
}

}  // namespace
}  // namespace slideway
