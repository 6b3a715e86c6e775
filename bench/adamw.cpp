// How fast is AdamW in the split format? In bytes moved, as a share of a plain copy by the same threads in the same run.
//
//   bench_adamw [threads]
#include "ops/adamw.h"

#include <cstdio>
#include <cstdlib>

#include "measure.h"

using namespace slideway;

int main(int argc, char** argv) {
  Threads threads(argc > 1 ? std::atoi(argv[1]) : 0);
  constexpr std::int64_t kParameters = 32 << 20;  // 448 MiB of state and gradients: no cache holds it
  const auto device = make_host_device();
  const bench::Numbers<bf16_t> hi(*device, kParameters, 0x3c00), grad(*device, kParameters, 0x3a00);
  const bench::Numbers<std::int16_t> lo(*device, kParameters, 5);
  const bench::Numbers<float> m(*device, kParameters, 1e-4f), v(*device, kParameters, 1e-6f);
  const double copy = std::max(bench::copy_rate(threads, m.data, kParameters * 4),
                               bench::copy_rate(threads, v.data, kParameters * 4));
  std::printf("%d threads; copy %.1f GB/s (read and written)\n", threads.count(), copy * 1e-9);
  const AdamwRange range{hi.data, lo.data, m.data, v.data, grad.data, DType::bf16, kParameters};
  const AdamwStep step = adamw_step({}, 1e-4, 0.01, 0.5, 10);
  struct Piece {
    const char* name;
    AdamwPiece piece;
    double bytes;  // read and written a parameter
  };
  for (const Piece& p : {Piece{"whole", AdamwPiece::whole, 26}, Piece{"weights", AdamwPiece::weights, 18},
                         Piece{"moments", AdamwPiece::moments, 18}}) {
    for (const CpuLevel level : cpu_levels()) {
      const double time = bench::best_seconds([&] { adamw(threads, range, step, p.piece, level); }, 1.0);
      const double rate = p.bytes * double(kParameters) / time;
      std::printf("%-8s %-7s %6.3f G parameters/s  %5.1f GB/s = %3.0f %% of the copy\n", p.name,
                  name_of(level).data(), double(kParameters) / time * 1e-9, rate * 1e-9, 100 * rate / copy);
    }
  }
}
