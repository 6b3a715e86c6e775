// How fast are the products of training? GFLOP/s of linear, its input's and its weight's gradient at the shapes of
// SmolLM2-135M, 1,024 tokens. bench/products.py runs this beside PyTorch.
//
//   bench_products [threads] [act: f32|bf16] [weight: f32|bf16]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/threads.h"
#include "measure.h"
#include "ops/ops.h"

using namespace slideway;

namespace {

struct Bench {
  std::unique_ptr<Device> device = make_host_device();
  std::unique_ptr<Worker> stream = device->make_worker("ops");
  Threads threads;
  std::unique_ptr<Ops> ops;
  std::vector<Buffer> memory;

  explicit Bench(int count) : threads(count), ops(make_cpu_ops(*stream, threads)) {}

  Tensor tensor(DType type, std::int64_t rows, std::int64_t columns) {
    memory.push_back(device->allocate(std::size_t(rows * columns) * bytes_of(type)));
    const Tensor made(memory.back().data(), type, {rows, columns});
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const float x = float(std::int32_t(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
      if (type == DType::f32) made.f32()[i] = x;
      if (type == DType::bf16) made.bf16()[i] = to_bf16(x);
    }
    return made;
  }
};

}  // namespace

int main(int argc, char** argv) {
  Bench b(argc > 1 ? std::atoi(argv[1]) : 0);
  const auto type = [&](int i) {
    return argc > i && std::strcmp(argv[i], "bf16") == 0 ? DType::bf16 : DType::f32;
  };
  const DType act = type(2), weight = type(3);
  struct Shape {
    std::int64_t T, N, C;
  };
  // qkv, o, gate and up, down; a tile of the head
  for (const auto [T, N, C] :
       {Shape{1024, 960, 576}, {1024, 576, 576}, {1024, 3072, 576}, {1024, 576, 1536}, {1024, 4096, 576}}) {
    b.memory.clear();
    const Tensor x = b.tensor(act, T, C), w = b.tensor(weight, N, C), y = b.tensor(act, T, N),
                 d_w = b.tensor(DType::f32, N, C);
    const auto rate = [&, flops = 2e-9 * double(T * N * C)](const auto& run) {
      return flops / bench::best_seconds([&] { run(), b.stream->synchronize(); }, 0.3, 5);
    };
    std::printf("%ld %ld %ld %.1f %.1f %.1f\n", long(T), long(N), long(C),
                rate([&] { b.ops->linear(y, x, w, {}); }),
                rate([&] { b.ops->linear_backward_input(x, y, w, false); }),
                rate([&] { b.ops->linear_backward_weight(d_w, {}, y, x); }));
    std::fflush(stdout);
  }
}
