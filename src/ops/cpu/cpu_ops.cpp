#include "ops/cpu/cpu_ops.h"

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/numeric_plan.h"

namespace slideway {

CpuOps::CpuOps(Worker& stream, Threads& threads, const OpsOptions& options)
    : stream_(stream), threads_(threads), options_(options) {}

DType CpuOps::preferred_activation() const {
  return has_bf16_products() ? DType::bf16 : DType::f32;
}

std::string CpuOps::numeric_plan() const {
  const auto by = [](std::int64_t a, std::int64_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  std::string bf16 = "bf16 products widened to f32";
  if (has_bf16_products()) {
    bf16 = "bf16 products " + bf16_product_library() + " in tiles " + by(kBf16Rows, kBf16Columns) +
           ", of weights " + by(kBf16WeightTile, kBf16WeightTile) + " over " +
           std::to_string(kBf16WeightRows) + " rows";
  }
  return "cpu; f32 products in chains; " + bf16 + "; attention " + by(kQueryRows, kKeyTile) + "; sums over " +
         std::to_string(kSumRows) + " rows; squares over " + std::to_string(kSquaresChunk);
}

std::unique_ptr<Ops> make_cpu_ops(Stream& stream, Threads& threads, const OpsOptions& options) {
  auto* const worker = dynamic_cast<Worker*>(&stream);
  if (!worker) fail(ErrorKind::internal, "CPU ops need a stream of the host device");
  return std::make_unique<CpuOps>(*worker, threads, options);
}

}  // namespace slideway
