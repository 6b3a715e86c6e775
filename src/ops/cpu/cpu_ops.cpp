#include "ops/cpu/cpu_ops.h"

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/numeric_plan.h"

namespace slideway {

CpuOps::CpuOps(Worker& stream, Threads& threads, const CpuOpsOptions& options)
    : stream_(stream), threads_(threads), options_(options) {}

DType CpuOps::preferred_activation() const {
  return has_bf16_products() ? DType::bf16 : DType::f32;
}

std::string CpuOps::numeric_plan() const {
  const auto tile = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b);
  };
  if (options_.row_invariant) return "cpu, row-invariant";
  return "cpu; products " + product_library() + ", tiles " + tile(kProductRows, kProductColumns) +
         ", weight tiles " + tile(kWeightTile, kWeightTile) + " over " + std::to_string(kWeightRows) +
         " rows; attention tiles " + tile(kQueryRows, kKeyTile) + "; sums over " + std::to_string(kSumRows) +
         " rows; squares in chunks of " + std::to_string(kSquaresChunk);
}

std::unique_ptr<Ops> make_cpu_ops(Stream& stream, Threads& threads, const CpuOpsOptions& options) {
  auto* const worker = dynamic_cast<Worker*>(&stream);
  if (!worker) fail(ErrorKind::internal, "CPU ops need a stream of the host device");
  return std::make_unique<CpuOps>(*worker, threads, options);
}

}  // namespace slideway
