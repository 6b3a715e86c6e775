#include <gtest/gtest.h>

#include <cstring>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "support/expect_error.h"
#include "support/project_path.h"

namespace slideway {
namespace {

struct NamedType {
  const char* name;
  int number;
};
constexpr NamedType kRead[] = {{"F32", 0},  {"F16", 1},  {"BF16", 30}, {"Q8_0", 8},  {"Q4_0", 2}, {"Q4_1", 3},
                               {"Q5_0", 6}, {"Q5_1", 7}, {"Q4_K", 12}, {"Q5_K", 13}, {"Q6_K", 14}};

TEST(GgufBlocks, EveryTypeEqualsTheReferenceBitForBit) {
  const SafetensorsFile golden(project_path("tests/golden/gguf_blocks.safetensors"));
  for (const NamedType& type : kRead) {
    const auto* blocks = golden.find(std::string(type.name) + ".blocks");
    const auto* values = golden.find(std::string(type.name) + ".values");
    ASSERT_TRUE(blocks && values) << type.name;
    std::vector<float> out(std::size_t(values->elements()));
    ASSERT_EQ(gguf_row_bytes(type.number, std::int64_t(out.size())), blocks->bytes) << type.name;
    dequantize(type.number, golden.bytes(*blocks), out);
    const auto* wanted = golden.bytes(*values).data();
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(std::memcmp(&out[i], wanted + 4 * i, 4), 0)
          << type.name << " number " << i << " is " << out[i];
  }
}

TEST(GgufBlocks, NamesTypesThatAreReadAndTypesThatAreNot) {
  for (const NamedType& type : kRead) {
    EXPECT_EQ(gguf_type_name(type.number), type.name);
    EXPECT_TRUE(gguf_type_is_read(type.number));
  }
  EXPECT_EQ(gguf_type_name(10), "Q2_K");
  EXPECT_FALSE(gguf_type_is_read(10));
  expect_error(ErrorKind::unsupported, {"4711"}, [] { gguf_type_name(4711); });
  std::vector<std::byte> block(84);
  std::vector<float> out(256);
  expect_error(ErrorKind::unsupported, {"Q2_K"}, [&] { dequantize(10, block, out); });
}

TEST(GgufBlocks, RefusesARowThatIsNoMultipleOfABlock) {
  expect_error(ErrorKind::corrupt, {"48", "Q4_1", "32"}, [] { gguf_row_bytes(3, 48); });
}

}  // namespace
}  // namespace slideway
