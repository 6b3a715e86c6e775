#include "formats/gguf.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

class Gguf : public testing::Test {
 protected:
  GgufFile open(const GgufBytes& gguf) { return open(gguf.bytes()); }
  GgufFile open(const std::string& bytes) {
    write_file(folder_ / "m.gguf", bytes);
    return GgufFile(folder_ / "m.gguf");
  }
  void refuse(ErrorKind kind, std::initializer_list<std::string> texts, const std::string& bytes) {
    expect_error(kind, texts, [&] { open(bytes); });
  }

  TemporaryFolder folder_;
};

GgufBytes one_tensor() {
  GgufBytes gguf;
  gguf.text("general.architecture", "llama").floats("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  return gguf;
}

TEST_F(Gguf, ReadsMetadataOfEveryType) {
  GgufBytes gguf;
  gguf.text("s", "héllo")
      .u32("n", 7)
      .f32("x", 0.5f)
      .key("yes", 7, "\1")
      .key("i", 11, raw_bytes(std::int64_t(-9)));
  gguf.key("list", 9, raw_bytes(std::uint32_t(1)) + raw_bytes(std::uint64_t(2)) + "\xff\1");
  gguf.key("reals", 9, raw_bytes(std::uint32_t(6)) + raw_bytes(std::uint64_t(1)) + raw_bytes(1.5f));
  gguf.key("words", 9,
           raw_bytes(std::uint32_t(8)) + raw_bytes(std::uint64_t(2)) + gguf_string("a") + gguf_string(""));
  const GgufFile file = open(gguf);
  EXPECT_EQ(file.text("s"), "héllo");
  EXPECT_EQ(file.integer("n"), 7);
  EXPECT_EQ(file.integer("i"), -9);
  EXPECT_EQ(file.number("x"), 0.5);
  EXPECT_EQ(file.number("n"), 7.0);
  EXPECT_EQ(std::get<bool>(*file.find("yes")), true);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*file.find("list")), (std::vector<std::int64_t>{-1, 1}));
  EXPECT_EQ(std::get<std::vector<double>>(*file.find("reals")), std::vector<double>{1.5});
  EXPECT_EQ(std::get<std::vector<std::string>>(*file.find("words")), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(file.find("absent"), nullptr);
  expect_error(ErrorKind::corrupt, {"absent"}, [&] { file.integer("absent"); });
  expect_error(ErrorKind::corrupt, {"s", "integer"}, [&] { file.integer("s"); });
  expect_error(ErrorKind::corrupt, {"n", "string"}, [&] { file.text("n"); });
}

TEST_F(Gguf, ReadsRowsOfATensorInRowMajorOrder) {
  const GgufFile file = open(one_tensor());
  const GgufTensor* tensor = file.find_tensor("w");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> second(3);
  file.read_rows(*tensor, 1, second);
  EXPECT_EQ(second, (std::vector<float>{4, 5, 6}));
}

TEST_F(Gguf, HonoursTheAlignmentTheFileStates) {
  GgufBytes gguf;
  gguf.alignment = 64;
  gguf.u32("general.alignment", 64).floats("a", {1}, {1}).floats("b", {1}, {2});
  const GgufFile file = open(gguf);
  std::vector<float> value(1);
  file.read_rows(*file.find_tensor("b"), 0, value);
  EXPECT_EQ(value[0], 2);
}

TEST_F(Gguf, RefusesWhatIsNoGgufFile) {
  refuse(ErrorKind::corrupt, {"not a GGUF file"}, "");
  refuse(ErrorKind::corrupt, {"not a GGUF file"}, "PK\3\4 something else entirely");
  expect_error(ErrorKind::not_found, {"nowhere.gguf"}, [&] { GgufFile(folder_ / "nowhere.gguf"); });
}

TEST_F(Gguf, RefusesAVersionItDoesNotKnow) {
  GgufBytes gguf = one_tensor();
  gguf.version = 1;
  refuse(ErrorKind::unsupported, {"version 1"}, gguf.bytes());
  gguf.version = 0x03000000;
  refuse(ErrorKind::unsupported, {"big-endian"}, gguf.bytes());
}

TEST_F(Gguf, RefusesAFileCutAtAnyByte) {
  const std::string whole = one_tensor().bytes();
  for (std::size_t length = 0; length < whole.size(); ++length)
    refuse(ErrorKind::corrupt, {"m.gguf"}, whole.substr(0, length));
}

TEST_F(Gguf, RefusesCountsThatTheFileCannotHold) {
  GgufBytes gguf = one_tensor();
  gguf.extra_tensors = std::uint64_t(1) << 60;
  refuse(ErrorKind::corrupt, {"tensors are announced"}, gguf.bytes());
  gguf = one_tensor();
  gguf.extra_keys = ~std::uint64_t(0) - 1;
  refuse(ErrorKind::corrupt, {"metadata keys are announced"}, gguf.bytes());
  gguf = one_tensor();
  gguf.key("list", 9, raw_bytes(std::uint32_t(10)) + raw_bytes(~std::uint64_t(0)));
  refuse(ErrorKind::corrupt, {"the array list"}, gguf.bytes());
  gguf = one_tensor();
  gguf.key("text", 8, raw_bytes(~std::uint64_t(0)));
  refuse(ErrorKind::corrupt, {"passes the end of the file"}, gguf.bytes());
}

TEST_F(Gguf, RefusesShapesThatOverflow) {
  GgufBytes gguf;
  gguf.tensor("w", {std::uint64_t(1) << 62, std::uint64_t(1) << 62}, 0, "");
  refuse(ErrorKind::corrupt, {"the tensor w has an axis of"}, gguf.bytes());
  gguf = {};
  gguf.tensor("w", {0, 4}, 0, "");
  refuse(ErrorKind::corrupt, {"axis of 0"}, gguf.bytes());
  gguf = {};
  gguf.tensor("w", {1, 1, 1, 1, 1}, 0, "");
  refuse(ErrorKind::corrupt, {"5 axes"}, gguf.bytes());
}

TEST_F(Gguf, RefusesATensorThatPassesTheEndOfTheFile) {
  GgufBytes gguf;
  gguf.tensor("blk.0.attn_q.weight", {64, 64}, 0, std::string(100, '\0'));
  refuse(ErrorKind::corrupt, {"blk.0.attn_q.weight", "16384 bytes", "cut short"}, gguf.bytes());
  gguf = one_tensor();
  gguf.tensor("far", {1}, 0, "", std::int64_t(1) << 50);
  refuse(ErrorKind::corrupt, {"far", "cut short"}, gguf.bytes());
}

TEST_F(Gguf, RefusesTensorsThatOverlapOrLieAskew) {
  GgufBytes gguf = one_tensor();
  gguf.tensor("v", {2}, 0, raw_floats({1, 2}), 0);
  refuse(ErrorKind::corrupt, {"overlap", "w", "v"}, gguf.bytes());
  gguf = one_tensor();
  gguf.tensor("v", {1}, 0, raw_floats({1, 2}), 36);
  refuse(ErrorKind::corrupt, {"v", "36", "32"}, gguf.bytes());
}

TEST_F(Gguf, RefusesNamesThatComeTwice) {
  refuse(ErrorKind::corrupt, {"the tensor w comes twice"}, one_tensor().floats("w", {1}, {1}).bytes());
  refuse(ErrorKind::corrupt, {"general.architecture comes twice"},
         one_tensor().text("general.architecture", "x").bytes());
}

TEST_F(Gguf, RefusesTypesItCannotKnow) {
  refuse(ErrorKind::unsupported, {"the tensor v", "4711"},
         one_tensor().tensor("v", {1}, 4711, "abcd").bytes());
  refuse(ErrorKind::corrupt, {"the tensor v", "Q4_1"}, one_tensor().tensor("v", {5}, 3, "abcd").bytes());
  refuse(ErrorKind::corrupt, {"value type 13"}, one_tensor().key("k", 13, "").bytes());
  refuse(ErrorKind::corrupt, {"a boolean is 2"}, one_tensor().key("k", 7, "\2").bytes());
  refuse(ErrorKind::unsupported, {"array of arrays"},
         one_tensor().key("k", 9, raw_bytes(std::uint32_t(9)) + raw_bytes(std::uint64_t(0))).bytes());
}

TEST_F(Gguf, RefusesAnAlignmentThatIsNoPowerOfTwo) {
  for (std::uint32_t alignment : {0u, 3u, 1u << 30})
    refuse(ErrorKind::corrupt, {"general.alignment"},
           one_tensor().u32("general.alignment", alignment).bytes());
}

TEST_F(Gguf, NamesATensorOfATypeThatIsNotRead) {
  GgufBytes gguf;
  gguf.tensor("blk.7.ffn_up.weight", {1, 256}, 10, std::string(84, '\0'));
  const GgufFile file = open(gguf);
  std::vector<float> out(256);
  expect_error(ErrorKind::unsupported, {"blk.7.ffn_up.weight", "Q2_K", "Q4_K"},
               [&] { file.read_rows(file.tensors()[0], 0, out); });
}

}  // namespace
}  // namespace slideway
