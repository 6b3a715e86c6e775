// How fast is attention over pages? For one new token over a long context, as a share of reading the keys and values; for
// chunks of a prompt, in GFLOP/s. SmolLM2-135M's heads and an 8B model's; so many layers that no cache holds them.
//
//   bench_paged_attention [threads]
#include "ops/cpu/paged_attention.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "measure.h"

using namespace slideway;

namespace {

constexpr int kPageTokens = 16;

struct Case {
  Heads heads;
  std::int32_t rows, length;
};

void measure(Threads& threads, Device& device, const Case& c, DType type, double read) {
  const std::size_t page_bytes =
      std::size_t(2 * kPageTokens * c.heads.key_value * c.heads.width) * bytes_of(type);
  const int max_pages = c.length / kPageTokens;
  const double layer_bytes = double(page_bytes) * max_pages;
  const int layers = c.rows == 1 ? std::max(1, int(256e6 / layer_bytes)) : 1;
  const std::int64_t pool_numbers = std::int64_t(layer_bytes) * layers / std::int64_t(bytes_of(type));
  const std::int64_t width = std::int64_t(c.heads.query) * c.heads.width;
  // 0x3d4c3d4c: about 0.05 as f32, and as two halves in bf16
  const bench::Numbers<std::uint32_t> pool(device, pool_numbers * std::int64_t(bytes_of(type)) / 4,
                                           0x3d4c3d4cu);
  const bench::Numbers<std::uint32_t> qkv(device, c.rows * c.heads.row(), 0x3d4c3d4cu),
      out(device, c.rows * width, 0);
  std::vector<std::int32_t> pages(std::size_t(max_pages) * std::size_t(layers));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  const std::vector<std::int32_t> starts{0, c.rows}, lengths{c.length};
  const double time = bench::best_seconds([&] {
    for (int layer = 0; layer < layers; ++layer) {
      const PagedKv kv{
          .pool = reinterpret_cast<std::byte*>(pool.data),
          .page_bytes = page_bytes,
          .page_tokens = kPageTokens,
          .pages = std::span(pages).subspan(std::size_t(layer * max_pages), std::size_t(max_pages)),
          .max_pages = max_pages,
          .starts = starts,
          .lengths = lengths};
      paged_attention(threads, Tensor(out.data, type, {c.rows, width}),
                      Tensor(qkv.data, type, {c.rows, c.heads.row()}), c.heads, kv, 0.125f);
    }
  });
  const double seen =
      double(c.rows) * (double(c.length) - double(c.rows - 1) / 2);  // pairs of query and key, a head
  const double bytes = layer_bytes * layers / time;
  std::printf("%-4s H=%-2d K=%d E=%-3d T=%-3d of %-4d %8.3f ms a layer  %6.1f GFLOP/s", name_of(type).data(),
              c.heads.query, c.heads.key_value, c.heads.width, c.rows, c.length, time / layers * 1e3,
              4 * seen * double(width) * layers / time * 1e-9);
  if (c.rows == 1) std::printf("  %5.1f GB/s = %3.0f %% of the read", bytes * 1e-9, 100 * bytes / read);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  Threads threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const auto device = make_host_device();
  const bench::Numbers<float> memory(*device, 64 << 20, 1);
  const double read = bench::read_rate(threads, memory.data, std::size_t(64 << 20) * 4);
  std::printf("%d threads; plain read %.1f GB/s\n", threads.count(), read * 1e-9);
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Heads& heads : {Heads{9, 3, 64}, Heads{32, 8, 128}}) {
      for (const auto& [rows, length] : {std::pair{1, 512}, {1, 8192}, {512, 512}, {128, 4096}}) {
        measure(threads, *device, {heads, rows, length}, type, read);
      }
    }
  }
}
