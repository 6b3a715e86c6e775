// Bytes as text, and as ids: never a crash, the stream's text is decode's, and valid text without added tokens comes
// back as it was.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

using namespace slideway;

namespace {

std::string escaped(const std::string& text) {
  return text == "\"" || text == "\\" ? "\\" + text : text;
}

// All bytes, some merges, tokens with every flag; the second one normalises and marks spaces.
std::unique_ptr<Tokenizer> make(const std::string& normalizer, const std::string& pre_tokenizer) {
  std::string vocabulary;
  int id = 0;
  const auto add = [&](const std::string& token) {
    vocabulary += (id > 0 ? ",\"" : "\"") + escaped(token) + "\":" + std::to_string(id);
    ++id;
  };
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    byte_alphabet::append_spelled(spelled, std::string(1, static_cast<char>(byte)));
    add(spelled);
  }
  for (const char* token : {"ab", "abab", "ĠĠ", "Ã©", "Ġa"}) add(token);
  const std::string added = R"({"id":261,"content":"<s>","special":true,"normalized":false},)"
                            R"({"id":262,"content":"<l>","lstrip":true,"normalized":false},)"
                            R"({"id":263,"content":"<r>","rstrip":true,"normalized":true},)"
                            R"({"id":264,"content":"word","single_word":true,"normalized":true},)"
                            R"({"id":265,"content":"  ","normalized":false})";
  return Tokenizer::from_json(R"({"added_tokens":[)" + added + R"(],"normalizer":)" + normalizer +
                              R"(,"pre_tokenizer":)" + pre_tokenizer +
                              R"(,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
                              vocabulary + R"(},"merges":["a b","ab ab","Ġ Ġ","Ã ©","Ġ a"]}})");
}

void check(bool promise) {
  if (!promise) std::abort();
}

void check_decode(const Tokenizer& tokenizer, const TokenIds& ids) {
  StreamDecoder stream(tokenizer, false);
  std::string joined;
  for (const std::int32_t id : ids) {
    joined += stream.push(id);
    check(is_valid_utf8(joined));
  }
  joined += stream.finish();
  check(joined == tokenizer.decode(ids, false));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  static const auto plain =
      make("null", R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
                   R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})");
  static const auto changing = make(
      R"({"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"Strip","strip_left":true,)"
      R"("strip_right":true}]})",
      R"({"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},)"
      R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]})");
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const std::string repaired = replace_invalid_utf8(text);
  check(is_valid_utf8(repaired));

  const TokenIds literal = plain->encode(text, {.parse_special_tokens = false});
  check(plain->decode(literal, false) == repaired);
  check_decode(*plain, plain->encode(text));
  check_decode(*changing, changing->encode(text));

  // Cut in two at a character: the same ids as the whole, and a flag for each.
  std::size_t middle = repaired.size() / 2;
  while (middle > 0 && middle < repaired.size() && (repaired[middle] & 0xC0) == 0x80) --middle;
  const std::vector<TextPiece> pieces = {{repaired.substr(0, middle)},
                                         {repaired.substr(middle), false, true}};
  for (const Tokenizer* tokenizer : {plain.get(), changing.get()}) {
    std::vector<bool> trained;
    check(tokenizer->encode(pieces, &trained) == tokenizer->encode(repaired));
    check(trained.size() == tokenizer->encode(pieces).size());
  }

  TokenIds ids(bytes / 2);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = data[2 * i] | (data[2 * i + 1] & 1) << 8;
  check_decode(*plain, ids);
  return 0;
}
