// Numbers on the device: f32 and bf16 as floats, one or eight at a time, and sums over a warp or a block in a fixed order.
//
// Eight numbers are one 16-byte access of bf16, two of f32. Whoever loads eight has checked that rows and addresses are
// multiples of them: aligned8() of launch.h.
#pragma once

#include "ops/cuda/launch.h"

namespace slideway {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float load(const float* p) {
  return *p;
}
__device__ inline float load(const bf16_t* p) {
  return __uint_as_float(std::uint32_t(*p) << 16);
}
__device__ inline void store(float* p, float x) {
  *p = x;
}
// To nearest, ties to even. Any NaN becomes 0x7fff.
__device__ inline std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline bf16_t bf16_of(float x) {
  return bf16_t(bf16_pair(x, x));
}
__device__ inline void store(bf16_t* p, float x) {
  *p = bf16_of(x);
}

struct Eight {
  float x[8];
  __device__ float& operator[](int i) { return x[i]; }
  __device__ float operator[](int i) const { return x[i]; }
};

__device__ inline Eight widened(uint4 raw) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return out;
}
__device__ inline uint4 narrowed(const Eight& v) {
  return {bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7])};
}

// Eight numbers as they lie in memory: half the registers where they are bf16.
template <class A>
struct Raw8;
template <>
struct Raw8<bf16_t> {
  uint4 raw;
  __device__ Eight wide() const { return widened(raw); }
};
template <>
struct Raw8<float> {
  float4 low, high;
  __device__ Eight wide() const { return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}}; }
};
__device__ inline Raw8<bf16_t> load_raw8(const bf16_t* p) {
  return {*reinterpret_cast<const uint4*>(p)};
}
__device__ inline Raw8<float> load_raw8(const float* p) {
  return {reinterpret_cast<const float4*>(p)[0], reinterpret_cast<const float4*>(p)[1]};
}
template <class A>
__device__ Eight load8(const A* p) {
  return load_raw8(p).wide();
}
__device__ inline void store8(bf16_t* p, const Eight& v) {
  *reinterpret_cast<uint4*>(p) = narrowed(v);
}
__device__ inline void store8(float* p, const Eight& v) {
  reinterpret_cast<float4*>(p)[0] = {v[0], v[1], v[2], v[3]};
  reinterpret_cast<float4*>(p)[1] = {v[4], v[5], v[6], v[7]};
}

// The sum of all lanes' x, in every lane: a tree by lane distance.
template <class T>
__device__ T warp_sum(T x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

// The sum of all threads' x, in every thread. room: a place in shared memory for one number a warp. Whoever calls
// twice in a row gives two places in turn: there is one barrier only.
template <class T>
__device__ T block_sum(T x, T* room) {
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  const int warps = int(blockDim.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  return warp_sum(lane < warps ? room[lane] : T(0));
}
__device__ inline float block_max(float x, float* room) {
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  const int warps = int(blockDim.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  return warp_max(lane < warps ? room[lane] : -INFINITY);
}

}  // namespace slideway
