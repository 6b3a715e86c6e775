// GGML's number formats: block sizes, and their exact values as f32. Every product and sum below is rounded on its
// own, in the order of the reference, so that the values equal other readers' bit for bit.
#include <cstring>

#include "core/error.h"
#include "formats/gguf.h"
#include "tensor/dtype.h"

namespace slideway {
namespace {

using Byte = std::uint8_t;

std::uint16_t u16_at(const Byte* p) {
  return std::uint16_t(p[0] | p[1] << 8);
}
float half_at(const Byte* p) {
  return half_to_float(u16_at(p));
}

void f32_blocks(const Byte* from, std::int64_t n, float* out) {
  std::memcpy(out, from, std::size_t(n) * 4);
}

void f16_blocks(const Byte* from, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = half_at(from + 2 * i);
}

void bf16_blocks(const Byte* from, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(u16_at(from + 2 * i));
}

// 32 numbers: d f16, 32 × i8
void q8_0_blocks(const Byte* b, std::int64_t n, float* out) {
  for (; n > 0; --n, b += 34, out += 32) {
    const float d = half_at(b);
    for (int i = 0; i < 32; ++i) out[i] = d * float(std::int8_t(b[2 + i]));
  }
}

// The four- and five-bit blocks of 32 numbers: d f16, [m f16], [fifth bits u32], 16 bytes whose low nibbles are
// numbers 0–15 and whose high nibbles are 16–31. kBits 5 adds the fifth bits, kMin the minimum m; without a minimum
// the codes are centred.
template <int kBits, bool kMin>
void nibble_blocks(const Byte* b, std::int64_t n, float* out) {
  constexpr int kHigh = kMin ? 4 : 2, kLow = kHigh + (kBits == 5 ? 4 : 0);
  for (; n > 0; --n, b += kLow + 16, out += 32) {
    const float d = half_at(b), m = kMin ? half_at(b + 2) : 0.0f;
    std::uint32_t fifth = 0;
    if constexpr (kBits == 5) std::memcpy(&fifth, b + kHigh, 4);
    for (int i = 0; i < 16; ++i) {
      int low = b[kLow + i] & 15, high = b[kLow + i] >> 4;
      if constexpr (kBits == 5) {
        low |= int(fifth >> i & 1) << 4;
        high |= int(fifth >> (i + 16) & 1) << 4;
      }
      constexpr int kCentre = kMin ? 0 : 1 << (kBits - 1);
      out[i] = d * float(low - kCentre);
      out[i + 16] = d * float(high - kCentre);
      if constexpr (kMin) {
        out[i] += m;
        out[i + 16] += m;
      }
    }
  }
}

// Scale and minimum of group j (of 8) of a K block: six bits each, packed into 12 bytes.
struct ScaleMin {
  float scale, min;
};
ScaleMin scale_min(const Byte* s, int j) {
  if (j < 4) return {float(s[j] & 63), float(s[j + 4] & 63)};
  return {float((s[j + 4] & 15) | (s[j - 4] >> 6) << 4), float(s[j + 4] >> 4 | (s[j] >> 6) << 4)};
}

// 256 numbers in 8 groups of 32: d f16, dmin f16, 12 bytes of scales, [32 bytes of fifth bits], 128 bytes of nibbles.
template <int kBits>
void k_blocks(const Byte* b, std::int64_t n, float* out) {
  constexpr int kLow = kBits == 5 ? 48 : 16;
  for (; n > 0; --n, b += kLow + 128, out += 256) {
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; ++j) {
      const ScaleMin group = scale_min(b + 4, j);
      const float scale = d * group.scale, min = dmin * group.min;
      const Byte* low = b + kLow + j / 2 * 32;
      for (int i = 0; i < 32; ++i) {
        int code = j % 2 ? low[i] >> 4 : low[i] & 15;
        if constexpr (kBits == 5) code |= (b[16 + i] >> j & 1) << 4;
        const float product = scale * float(code);
        out[32 * j + i] = product - min;
      }
    }
  }
}

// 256 numbers in 16 groups of 16: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 × i8 scales, d f16.
void q6_k_blocks(const Byte* b, std::int64_t n, float* out) {
  for (; n > 0; --n, b += 210, out += 256) {
    const float d = half_at(b + 208);
    for (int g = 0; g < 8; ++g) {  // runs of 32: two groups share their packed bytes' layout
      const Byte* low = b + g / 4 * 64 + g % 2 * 32;
      const Byte* high = b + 128 + g / 4 * 32;
      for (int i = 0; i < 32; ++i) {
        const int nibble = g % 4 / 2 ? low[i] >> 4 : low[i] & 15;
        const int code = (nibble | (high[i] >> (2 * (g % 4)) & 3) << 4) - 32;
        const float scale = d * float(std::int8_t(b[192 + 2 * g + i / 16]));
        out[32 * g + i] = scale * float(code);
      }
    }
  }
}

struct GgufType {
  int number;
  const char* name;
  int block;                                                              // numbers
  int bytes;                                                              // a block
  void (*dequantize)(const Byte* from, std::int64_t blocks, float* out);  // null: known, but not read
};

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, f32_blocks},
    {1, "F16", 1, 2, f16_blocks},
    {2, "Q4_0", 32, 18, nibble_blocks<4, false>},
    {3, "Q4_1", 32, 20, nibble_blocks<4, true>},
    {6, "Q5_0", 32, 22, nibble_blocks<5, false>},
    {7, "Q5_1", 32, 24, nibble_blocks<5, true>},
    {8, "Q8_0", 32, 34, q8_0_blocks},
    {9, "Q8_1", 32, 36, nullptr},
    {10, "Q2_K", 256, 84, nullptr},
    {11, "Q3_K", 256, 110, nullptr},
    {12, "Q4_K", 256, 144, k_blocks<4>},
    {13, "Q5_K", 256, 176, k_blocks<5>},
    {14, "Q6_K", 256, 210, q6_k_blocks},
    {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, nullptr},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {30, "BF16", 1, 2, bf16_blocks},
    {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},
    {39, "MXFP4", 32, 17, nullptr},
};

const GgufType& type_of(int number) {
  for (const GgufType& type : kTypes)
    if (type.number == number) return type;
  fail(ErrorKind::unsupported, "GGUF tensor type number ", number, " is not known to this program");
}

}  // namespace

std::string gguf_type_name(int type) {
  return type_of(type).name;
}

bool gguf_type_is_read(int type) {
  return type_of(type).dequantize != nullptr;
}

std::uint64_t gguf_row_bytes(int type, std::int64_t n) {
  const GgufType& t = type_of(type);
  if (n % t.block != 0)
    fail(ErrorKind::corrupt, "a row of ", n, " numbers is not a multiple of ", t.name, "'s block of ",
         t.block);
  return std::uint64_t(n / t.block) * std::uint64_t(t.bytes);
}

void dequantize(int type, std::span<const std::byte> from, std::span<float> out) {
  const GgufType& t = type_of(type);
  if (!t.dequantize)
    fail(ErrorKind::unsupported, "GGUF tensor type ", t.name,
         " is not read; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are");
  CHECK(gguf_row_bytes(type, std::int64_t(out.size())) == from.size());
  t.dequantize(reinterpret_cast<const Byte*>(from.data()), std::int64_t(out.size()) / t.block, out.data());
}

}  // namespace slideway
