// Plain work on whole blocks.
#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/numeric_plan.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr std::int64_t kChunk = 65536;  // elements a piece; no bits depend on it

// Calls chunk(begin, size) for pieces of n elements.
template <class Chunk>
void for_chunks(Threads& threads, std::int64_t n, const Chunk& chunk) {
  threads.for_each((n + kChunk - 1) / kChunk,
                   [&](std::int64_t piece) { chunk(piece * kChunk, std::min(kChunk, n - piece * kChunk)); });
}

// In f64, in eight sums that run over i, i + 8, …, then added in ascending order. Squares of floats are exact in f64.
template <class A>
double squares(const A* x, std::int64_t n) {
  __m256d low = _mm256_setzero_pd(), high = low;
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 eight;
    if constexpr (std::is_same_v<A, float>) {
      eight = _mm256_loadu_ps(x + i);
    } else {
      eight = widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)));
    }
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(eight)),
                  b = _mm256_cvtps_pd(_mm256_extractf128_ps(eight, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  double lanes[8];
  _mm256_storeu_pd(lanes, low);
  _mm256_storeu_pd(lanes + 4, high);
  double total = 0;
  for (const double lane : lanes) total += lane;
  for (; i < n; ++i) {
    double v;
    if constexpr (std::is_same_v<A, float>) {
      v = x[i];
    } else {
      v = to_float(x[i]);
    }
    total += v * v;
  }
  return total;
}

}  // namespace

void CpuOps::add(Tensor x, Tensor y) {
  shapes::add(x, y);
  stream_.run([=, this] {
    with_type(x.dtype(), [&](auto zero) {
      using A = decltype(zero);
      for_chunks(threads_, x.elements(), [&](std::int64_t begin, std::int64_t size) {
        A* const to = numbers<A>(x) + begin;
        const A* const from = numbers<A>(y) + begin;
        for_lanes(size, [&](std::int64_t i, auto part) {
          store(to + i, load(to + i, part) + load(from + i, part), part);
        });
      });
    });
  });
}

void CpuOps::fill_zero(Tensor x) {
  shapes::fill_zero(x);
  stream_.run([=, this] {
    auto* const bytes = static_cast<std::byte*>(x.data());
    for_chunks(threads_, std::int64_t(x.bytes()), [&](std::int64_t begin, std::int64_t size) {
      std::memset(bytes + begin, 0, std::size_t(size));
    });
  });
}

void CpuOps::convert(Tensor out, Tensor x) {
  shapes::convert(out, x);
  stream_.run([=, this] {
    with_type(out.dtype(), [&](auto a) {
      with_type(x.dtype(), [&](auto b) {
        using A = decltype(a);
        using B = decltype(b);
        for_chunks(threads_, x.elements(), [&](std::int64_t begin, std::int64_t size) {
          A* const to = numbers<A>(out) + begin;
          const B* const from = numbers<B>(x) + begin;
          for_lanes(size, [&](std::int64_t i, auto part) { store(to + i, load(from + i, part), part); });
        });
      });
    });
  });
}

void CpuOps::sum_of_squares(Tensor out, Tensor x) {
  shapes::sum_of_squares(out, x);
  stream_.run([=, this] {
    const std::int64_t n = x.elements(), chunks = (n + kSquaresChunk - 1) / kSquaresChunk;
    chunk_sums_.resize(std::size_t(std::max<std::int64_t>(chunks, std::int64_t(chunk_sums_.size()))));
    with_type(x.dtype(), [&](auto zero) {
      using A = decltype(zero);
      threads_.for_each(chunks, [&](std::int64_t c) {
        const std::int64_t begin = c * kSquaresChunk;
        chunk_sums_[std::size_t(c)] = squares(numbers<A>(x) + begin, std::min(kSquaresChunk, n - begin));
      });
    });
    double total = 0;
    for (std::int64_t c = 0; c < chunks; ++c) total += chunk_sums_[std::size_t(c)];
    out.f64()[0] = total;
  });
}

}  // namespace slideway
