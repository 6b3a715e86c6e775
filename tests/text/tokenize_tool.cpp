// tokenize_tool TOKENIZER [--no-special] [--no-parse] < text > ids
// tokenize_tool TOKENIZER --pieces < pieces > ids, each followed by 1 where it is trained, else 0
// tokenize_tool TOKENIZER --decode [--keep-special] [--stream] < ids > text
// tokenize_tool TOKENIZER --json > tokenizer.json, or --config > tokenizer_config.json
// tokenize_tool TOKENIZER --time < text      prints MB/s of processor time, the best of five
//
// The tokenizer for scripts: what the oracle tests and the bench drive. Ids are little-endian int32. A piece is two
// int32 (bytes; 1 literal + 2 trained) and its text. --stream writes a zero byte after each token's text.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <iterator>
#include <set>
#include <string>

#include "core/error.h"
#include "text/tokenizer.h"

using namespace slideway;

namespace {

using Flags = std::set<std::string>;

void write_bytes(std::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

void write_ids(const TokenIds& ids) {
  std::fwrite(ids.data(), sizeof(std::int32_t), ids.size(), stdout);
}

void time_encode(const Tokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  std::size_t tokens = 0;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();
    tokens = tokenizer.encode(text).size();
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::printf("%.2f MB/s, %zu tokens\n", static_cast<double>(text.size()) / 1e6 / best, tokens);
}

void encode_pieces(const Tokenizer& tokenizer, std::string_view in) {
  std::vector<TextPiece> pieces;
  while (in.size() >= 8) {
    std::int32_t head[2];
    std::memcpy(head, in.data(), 8);
    pieces.push_back({std::string(in.substr(8, static_cast<std::size_t>(head[0]))), (head[1] & 1) != 0,
                      (head[1] & 2) != 0});
    in.remove_prefix(8 + static_cast<std::size_t>(head[0]));
  }
  std::vector<bool> trained;
  const TokenIds ids = tokenizer.encode(pieces, &trained);
  TokenIds out;
  for (std::size_t i = 0; i < ids.size(); ++i) out.insert(out.end(), {ids[i], trained[i] ? 1 : 0});
  write_ids(out);
}

void decode(const Tokenizer& tokenizer, const std::string& in, const Flags& flags) {
  TokenIds ids(in.size() / sizeof(std::int32_t));
  std::memcpy(ids.data(), in.data(), ids.size() * sizeof(std::int32_t));
  const bool skip_special = !flags.contains("--keep-special");
  if (!flags.contains("--stream")) return write_bytes(tokenizer.decode(ids, skip_special));
  StreamDecoder stream(tokenizer, skip_special);
  for (const std::int32_t id : ids) write_bytes(stream.push(id) + '\0');
  write_bytes(stream.finish());
}

void run(const Tokenizer& tokenizer, const Flags& flags) {
  if (flags.contains("--json")) return write_bytes(tokenizer.to_json());
  if (flags.contains("--config")) return write_bytes(tokenizer.config_json());
  const std::string in{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (flags.contains("--time")) return time_encode(tokenizer, in);
  if (flags.contains("--pieces")) return encode_pieces(tokenizer, in);
  if (flags.contains("--decode")) return decode(tokenizer, in, flags);
  write_ids(tokenizer.encode(in, {.add_special_tokens = !flags.contains("--no-special"),
                                  .parse_special_tokens = !flags.contains("--no-parse")}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: tokenize_tool TOKENIZER [--no-special] [--no-parse] [--pieces] [--decode] …\n");
    return 2;
  }
  try {
    run(*Tokenizer::load(argv[1]), Flags(argv + 2, argv + argc));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
