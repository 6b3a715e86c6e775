// Bytes as a tokenizer.json: read or refused with an Error, and what is read encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/log.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  slideway::set_log_level(slideway::LogLevel::error);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace slideway;
  try {
    const auto tokenizer = Tokenizer::from_json(std::string(reinterpret_cast<const char*>(data), bytes));
    const TokenIds ids = tokenizer->encode("Hi  <s> 12,\r\n\u00e9\u3042 \U0001F336 'll\xF0\x9F x");
    tokenizer->decode(ids);
    tokenizer->encode(std::string("<s>a\0b", 6), {.parse_special_tokens = false});
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) __builtin_trap();
  }
  return 0;
}
