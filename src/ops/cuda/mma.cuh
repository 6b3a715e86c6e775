// Products of bf16 tiles by a warp's tensor-core instruction (mma.m16n8k16, from sm_80 on), and how tiles come to it.
//
// A tile lies in shared memory with rows of kE numbers, cut into chunks of eight (16 bytes); chunk c of row r lies at place
// c ^ (r mod 8), so that the eight rows of a chunk lie in different banks.
//
//   A [16, 16]   four registers: rows l/4, l/4 + 8 in the left half, the same in the right (l: lane)
//   B [16, 8]    two registers: k = 2 (l mod 4) …, column l/4; then k + 8
//   C [16, 8]    c[0], c[1]: row l/4, columns 2 (l mod 4) …; c[2], c[3]: row l/4 + 8
//
// Source   PTX ISA, "Matrix Fragments for mma.m16n8k16"; "ldmatrix"; "cp.async"
#pragma once

#include "ops/cuda/numbers.cuh"

namespace slideway {

// Where chunk `chunk` of row `row` lies, in numbers.
template <int kE>
__device__ int place_of(int row, int chunk) {
  return row * kE + (chunk ^ (row & 7)) * 8;
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return std::uint32_t(__cvta_generic_to_shared(p));
}

// Sixteen bytes from device to shared memory beside the computation; zeros where there is nothing.
__device__ inline void copy16(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0));
}
__device__ inline void copy4(void* to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 4 : 0));
}
__device__ inline void end_copies() {
  asm volatile("cp.async.commit_group;");
}
// Until all but the last kPending groups of copies are there.
template <int kPending>
__device__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rows [first, first + kRows) of a head of `width` numbers, rows `stride` apart, by kThreads threads; zeros from row
// last on.
template <int kE, int kRows, int kThreads>
__device__ void copy_rows(bf16_t* to, const bf16_t* from, std::int64_t stride, int first, int last,
                          int width) {
  constexpr int kChunks = kE / 8, kStep = kThreads / kChunks;  // a thread has one chunk of every kStep-th row
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0 && kStep % 8 == 0);
  const int chunk = int(threadIdx.x) % kChunks, row0 = int(threadIdx.x) / kChunks;
  const bf16_t* at = from + (first + row0) * stride + chunk * 8;
  bf16_t* const place = to + place_of<kE>(row0, chunk);
#pragma unroll
  for (int row = 0; row < kRows; row += kStep, at += kStep * stride) {
    const bool there = first + row0 + row < last && chunk * 8 < width;
    copy16(place + row * kE, there ? at : from, there);
  }
}

struct Four {
  std::uint32_t r[4];
};

__device__ inline Four load_matrices(const bf16_t* p) {
  Four f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(shared_address(p)));
  return f;
}
__device__ inline Four load_turned_matrices(const bf16_t* p) {
  Four f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(shared_address(p)));
  return f;
}

// A of rows row …, numbers 16 k … of a tile.
template <int kE>
__device__ Four load_a(const bf16_t* tile, int row, int k) {
  const int lane = int(threadIdx.x) % kWarp;
  return load_matrices(tile + place_of<kE>(row + lane % 16, 2 * k + lane / 16));
}
// Two Bs, for columns n … n + 15, of a tile whose rows are B's columns: B[k, n] = tile[n][16 k …].
template <int kE>
__device__ Four load_b(const bf16_t* tile, int n, int k) {
  const int lane = int(threadIdx.x) % kWarp;
  return load_matrices(tile + place_of<kE>(n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}
// Two Bs of a tile whose rows are B's rows: B[k, n] = tile[k …][n …].
template <int kE>
__device__ Four load_b_turned(const bf16_t* tile, int k, int n) {
  const int lane = int(threadIdx.x) % kWarp;
  return load_turned_matrices(tile + place_of<kE>(k + lane % 16, n / 8 + lane / 16));
}

// c += a · b
__device__ inline void multiply(float (&c)[4], const Four& a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

// Two Cs side by side, rounded to bf16, are an A.
__device__ inline Four as_a(const float (&left)[4], const float (&right)[4]) {
  return {{bf16_pair(left[0], left[1]), bf16_pair(left[2], left[3]), bf16_pair(right[0], right[1]),
           bf16_pair(right[2], right[3])}};
}

// 2^x, to about 22 bits
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace slideway
