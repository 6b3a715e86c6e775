#include <algorithm>

#include "ops/adamw.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/shapes.h"

namespace slideway {

void CpuOps::join(Tensor out, Tensor hi, Tensor lo) {
  shapes::join(out, hi, lo);
  stream_.run([=, this] {
    constexpr std::int64_t kPiece = 1 << 16;
    const std::int64_t n = out.elements();
    const auto* remainder = static_cast<const std::int16_t*>(lo.data());
    threads_.for_each((n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
      const std::int64_t at = piece * kPiece;
      join_range(out.f32() + at, hi.bf16() + at, remainder + at, std::min(kPiece, n - at));
    });
  });
}

void CpuOps::adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) {
  stream_.run([=, this] { slideway::adamw(threads_, range, step, piece); });
}

}  // namespace slideway
