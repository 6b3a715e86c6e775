#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

class Safetensors : public testing::Test {
 protected:
  static std::string file_of(const std::string& header, std::size_t data_bytes) {
    return raw_bytes(std::uint64_t(header.size())) + header + std::string(data_bytes, '\1');
  }
  SafetensorsFile open(const std::string& bytes) {
    write_file(folder_ / "m.safetensors", bytes);
    return SafetensorsFile(folder_ / "m.safetensors");
  }
  void refuse(ErrorKind kind, std::initializer_list<std::string> texts, const std::string& bytes) {
    expect_error(kind, texts, [&] { open(bytes); });
  }

  TemporaryFolder folder_;
};

TEST_F(Safetensors, ReadsWhatItWrites) {
  const std::vector<float> a = {1, -2.5f, 3}, b = {7};
  const std::vector<std::uint16_t> halves = {to_bf16(1.5f), to_bf16(-8)};
  {
    SafetensorsWriter writer(folder_ / "m.safetensors",
                             {{"a", "F32", {3}}, {"b \"x\"", "F32", {}}, {"c", "BF16", {1, 2}}},
                             {{"format", "pt"}});
    writer.write(std::as_bytes(std::span(a)).first(5));  // pieces need not end with tensors
    writer.write(std::as_bytes(std::span(a)).subspan(5));
    writer.write(std::as_bytes(std::span(b)));
    writer.write(std::as_bytes(std::span(halves)));
    writer.close();
  }
  const SafetensorsFile file(folder_ / "m.safetensors");
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.entries()[0].offset % 8, 0u);
  std::vector<float> values(3), one(1), two(2);
  file.read_f32(*file.find("a"), values);
  file.read_f32(*file.find("b \"x\""), one);
  file.read_f32(*file.find("c"), two);
  EXPECT_EQ(values, a);
  EXPECT_EQ(one, b);
  EXPECT_EQ(two, (std::vector<float>{1.5f, -8}));
  EXPECT_EQ(file.find("c")->shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(file.find("d"), nullptr);
}

TEST_F(Safetensors, WritesEveryDeclaredByteOrFails) {
  SafetensorsWriter writer(folder_ / "m.safetensors", {{"a", "F32", {2}}});
  const float one = 1;
  writer.write(std::as_bytes(std::span(&one, 1)));
  expect_error(ErrorKind::internal, {"4 bytes of 8"}, [&] { writer.close(); });
  const float many[2] = {};
  expect_error(ErrorKind::internal, {"more bytes"}, [&] { writer.write(std::as_bytes(std::span(many))); });
}

TEST_F(Safetensors, WidensHalvesExactly) {
  const std::string header = R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})";
  std::string bytes = file_of(header, 0);
  for (const float x : {0.5f, -65504.0f, 5.9604645e-08f}) bytes += raw_bytes(to_half(x));
  const SafetensorsFile file = open(bytes);
  std::vector<float> values(3);
  file.read_f32(file.entries()[0], values);
  EXPECT_EQ(values, (std::vector<float>{0.5f, -65504.0f, 5.9604645e-08f}));
}

TEST_F(Safetensors, KnowsAFileWithoutTensors) {
  const SafetensorsFile file = open(file_of(R"({"__metadata__":{"format":"pt"}})", 0));
  EXPECT_TRUE(file.entries().empty());
  EXPECT_TRUE(open(file_of(R"({"e":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", 0)).find("e"));
}

TEST_F(Safetensors, RefusesAFileCutAtAnyByte) {
  const std::string whole = file_of(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
      11);
  for (std::size_t length = 0; length < whole.size(); ++length)
    refuse(ErrorKind::corrupt, {"m.safetensors"}, whole.substr(0, length));
  refuse(ErrorKind::corrupt, {"1 bytes follow the last tensor"}, whole + "x");
}

TEST_F(Safetensors, RefusesAnAbsurdHeaderLength) {
  refuse(ErrorKind::corrupt, {"18446744073709551615"}, std::string(8, '\xff') + "{}");
  refuse(ErrorKind::corrupt, {"100000001"}, raw_bytes(std::uint64_t(100'000'001)) + "{}");
}

TEST_F(Safetensors, RefusesAHeaderThatIsNoJsonObject) {
  refuse(ErrorKind::corrupt, {"header"}, file_of("[]", 0));
  refuse(ErrorKind::corrupt, {"header"}, file_of(R"({"a":)", 0));
  refuse(ErrorKind::corrupt, {"deeper"}, file_of(std::string(5000, '['), 0));
  refuse(ErrorKind::corrupt, {"__metadata__.n is not a string"}, file_of(R"({"__metadata__":{"n":3}})", 0));
}

TEST_F(Safetensors, RefusesATensorWhoseBytesDoNotFitItsShape) {
  refuse(ErrorKind::corrupt, {"the tensor a", "[2, 2]", "16 bytes", "[0, 12]"},
         file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,12]}})", 12));
  refuse(ErrorKind::corrupt, {"the tensor a"},
         file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4));
  refuse(ErrorKind::corrupt, {"absurdly large"},
         file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0));
  refuse(ErrorKind::corrupt, {"-1"}, file_of(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0));
  refuse(ErrorKind::corrupt, {"1.5"},
         file_of(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1));
  refuse(ErrorKind::corrupt, {"the tensor a", "expected"}, file_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1));
  refuse(ErrorKind::unsupported, {"the tensor a", "Q9"},
         file_of(R"({"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,1]}})", 1));
}

TEST_F(Safetensors, RefusesOverlapsGapsAndNamesThatComeTwice) {
  refuse(
      ErrorKind::corrupt, {"the tensor b", "inside"},
      file_of(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6));
  refuse(
      ErrorKind::corrupt, {"the tensor b", "past the end"},
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
          3));
  refuse(
      ErrorKind::corrupt, {"\"a\" comes twice"},
      file_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          2));
}

TEST_F(Safetensors, RefusesToReadAnotherTypeAsNumbers) {
  const SafetensorsFile file = open(file_of(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  std::vector<float> out(1);
  expect_error(ErrorKind::unsupported, {"the tensor a", "I64"},
               [&] { file.read_f32(file.entries()[0], out); });
}

}  // namespace
}  // namespace slideway
