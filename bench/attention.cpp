// How fast are attention and its gradient in training? Milliseconds at the heads of SmolLM2-135M (9 query, 3 key-value, 64 wide),
// one sequence. bench/attention.py runs this beside PyTorch.
//
//   bench_attention [threads] [f32|bf16]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/threads.h"
#include "measure.h"
#include "ops/ops.h"

using namespace slideway;

int main(int argc, char** argv) {
  Threads threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const DType act = argc > 2 && std::strcmp(argv[2], "bf16") == 0 ? DType::bf16 : DType::f32;
  const auto device = make_host_device();
  const auto stream = device->make_worker("ops");
  const auto ops = make_cpu_ops(*stream, threads);
  const Heads heads{9, 3, 64};
  for (const std::int64_t T : {256, 1024, 4096}) {
    std::vector<Buffer> memory;
    const auto tensor = [&](DType type, std::int64_t rows, std::int64_t columns) {
      memory.push_back(device->allocate(std::size_t(rows * columns) * bytes_of(type)));
      const Tensor made(memory.back().data(), type, {rows, columns});
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const float x = float(std::sin(double(i)));
        if (type == DType::f32) made.f32()[i] = x;
        if (type == DType::bf16) made.bf16()[i] = to_bf16(x);
      }
      return made;
    };
    const Tensor qkv = tensor(act, T, heads.row()), out = tensor(act, T, 576), lse = tensor(DType::f32, 9, T);
    const Tensor d_qkv = tensor(act, T, heads.row()), d_out = tensor(act, T, 576);
    const std::int32_t starts[] = {0, std::int32_t(T)};
    const auto time = [&](const auto& run) {
      return 1e3 * bench::best_seconds([&] { run(), stream->synchronize(); }, 0.5, 5);
    };
    const double forward = time([&] { ops->attention(out, lse, qkv, heads, {starts, 0}, 0.125f); });
    const double backward =
        time([&] { ops->attention_backward(d_qkv, d_out, out, lse, qkv, heads, {starts, 0}, 0.125f); });
    std::printf("%ld %.3f %.3f\n", long(T), forward, backward);
    std::fflush(stdout);
  }
}
