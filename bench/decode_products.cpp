// How fast are row-invariant products? With one row, as a share of reading the same weights; with more, in GFLOP/s beside
// oneDNN's sgemm on as many threads. Shapes: SmolLM2-135M's, all layers, so that no cache holds the weights.
//
//   bench_decode_products [threads]
#include <dnnl.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "measure.h"
#include "ops/cpu/row_products.h"

using namespace slideway;

namespace {

struct Shape {
  const char* name;
  std::int64_t outputs, inputs;
};
constexpr Shape kLayer[] = {{"qkv", 960, 576}, {"o", 576, 576}, {"gate_up", 3072, 576}, {"down", 576, 1536}};
constexpr Shape kHead = {"head", 49152, 576};
constexpr Shape kLarge = {"7B's o", 4096, 4096};
constexpr int kLayers = 30;

void one_token(Threads& threads, bf16_t* weights, float* x, float* out, std::int64_t rows, CpuLevel level) {
  const auto product = [&](const Shape& s) {
    row_linear(threads, Tensor(out, DType::f32, {rows, s.outputs}), Tensor(x, DType::f32, {rows, s.inputs}),
               Tensor(weights, DType::bf16, {s.outputs, s.inputs}), {}, level);
    weights += s.outputs * s.inputs;
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Shape& s : kLayer) product(s);
  }
  product(kHead);
}

void many_rows(Threads& threads, const Shape& s, bf16_t* weights, float* wide, float* x, float* out,
               std::int64_t rows) {
  const double flops = 2.0 * double(rows) * double(s.outputs) * double(s.inputs);
  std::printf("  %-8s T=%-4ld", s.name, long(rows));
  for (const CpuLevel level : cpu_levels()) {
    if (level == CpuLevel::scalar) continue;
    const double time = bench::best_seconds(
        [&] {
          row_linear(threads, Tensor(out, DType::f32, {rows, s.outputs}),
                     Tensor(x, DType::f32, {rows, s.inputs}),
                     Tensor(weights, DType::bf16, {s.outputs, s.inputs}), {}, level);
        },
        0.3);
    std::printf("  %s %6.1f", name_of(level).data(), flops / time * 1e-9);
  }
  const double sgemm = bench::best_seconds(
      [&] {
        dnnl_sgemm('N', 'T', rows, s.outputs, s.inputs, 1, x, s.inputs, wide, s.inputs, 0, out, s.outputs);
      },
      0.3);
  std::printf("  oneDNN sgemm %6.1f GFLOP/s\n", flops / sgemm * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  Threads threads(argc > 1 ? std::atoi(argv[1]) : 0);
  omp_set_num_threads(threads.count());
  std::int64_t parameters = kHead.outputs * kHead.inputs;
  for (const Shape& s : kLayer) parameters += kLayers * s.outputs * s.inputs;
  const auto device = make_host_device();
  const bench::Numbers<bf16_t> weights(*device, parameters, 0);
  const bench::Numbers<float> wide(*device, kLarge.outputs * kLarge.inputs, 0), x(*device, 512 * 4096, 0),
      out(*device, 512 * 4096, 0);
  std::mt19937 random(1);
  const auto draw = [&] { return float(random()) * 0x1p-32f - 0.5f; };
  for (std::int64_t i = 0; i < parameters; ++i) weights.data[i] = to_bf16(draw());
  for (std::int64_t i = 0; i < kLarge.outputs * kLarge.inputs; ++i) wide.data[i] = to_float(weights.data[i]);
  for (std::int64_t i = 0; i < 512 * 4096; ++i) x.data[i] = draw();

  const double bytes = 2.0 * double(parameters);
  const double read = bench::read_rate(threads, weights.data, std::size_t(bytes));
  std::printf("%d threads; plain read %.1f GB/s\n", threads.count(), read * 1e-9);
  for (const std::int64_t rows : {1, 2, 4, 8, 16}) {
    for (const CpuLevel level : cpu_levels()) {
      if (level == CpuLevel::scalar) continue;
      const double time = bench::best_seconds(
          [&] { one_token(threads, weights.data, x.data, out.data, rows, level); }, 1.0, 5);
      std::printf("all weights, T=%-3ld %-7s %6.2f ms  %5.1f GB/s = %3.0f %% of the read  %6.1f GFLOP/s\n",
                  long(rows), name_of(level).data(), time * 1e3, bytes / time * 1e-9,
                  100 * bytes / time / read, double(rows) * bytes / time * 1e-9);
    }
  }
  for (const std::int64_t rows : {16, 512}) {
    for (const Shape& s : kLayer) many_rows(threads, s, weights.data, wide.data, x.data, out.data, rows);
    many_rows(threads, kLarge, weights.data, wide.data, x.data, out.data, rows);
  }
}
