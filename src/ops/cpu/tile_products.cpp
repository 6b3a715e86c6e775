#include "ops/cpu/tile_products.h"

#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

#include "ops/cpu/cpu_level.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/scratch.h"

namespace slideway {
namespace {

// Inner dimension of a product whose operands are widened first: 512 columns of 512 floats still fit the L2 cache.
constexpr std::int64_t kWidenTile = 512;

using dnnl::memory;

memory::data_type data_type(DType type) {
  return type == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// All that decides which primitive a product needs.
struct Shape {
  std::int64_t m, n, k;
  DType type, out_type;
  std::int64_t a_stride, b_stride, out_stride;
  bool a_transposed, b_transposed, accumulate, bias;

  auto key() const {
    return std::tuple(m, n, k, type, out_type, a_stride, b_stride, out_stride, a_transposed, b_transposed,
                      accumulate, bias);
  }
  bool operator<(const Shape& other) const { return key() < other.key(); }
};

struct Primitive {
  memory::desc a, b, out, bias, scratch;
  dnnl::matmul product;
};

memory::desc description(std::int64_t rows, std::int64_t columns, DType type, std::int64_t stride,
                         bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return memory::desc({rows, columns}, data_type(type), strides);
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    // The level must be lowered before oneDNN makes its first primitive. It may already have been asked.
    if (best_cpu_level() != CpuLevel::avx512) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

// oneDNN's stream for this thread, with its own OpenMP threads switched off.
dnnl::stream& stream() {
  thread_local dnnl::stream own = [] {
    omp_set_num_threads(1);
    return dnnl::stream(engine());
  }();
  return own;
}

Primitive make_primitive(const Shape& s) {
  Primitive made;
  made.a = description(s.m, s.k, s.type, s.a_stride, s.a_transposed);
  made.b = description(s.k, s.n, s.type, s.b_stride, s.b_transposed);
  made.out = description(s.m, s.n, s.out_type, s.out_stride, false);
  made.bias = memory::desc({1, s.n}, memory::data_type::f32, memory::dims{s.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto wanted = s.bias ? dnnl::matmul::desc(made.a, made.b, made.bias, made.out)
                             : dnnl::matmul::desc(made.a, made.b, made.out);
  const dnnl::matmul::primitive_desc chosen(wanted, attributes, engine());
  made.scratch = chosen.scratchpad_desc();
  made.product = dnnl::matmul(chosen);
  return made;
}

// Rows in memory order, widened, without gaps.
MatrixView widened(const MatrixView& x, ScratchSlot slot) {
  if (x.type == DType::f32) return x;
  const std::int64_t lines = x.transposed ? x.columns : x.rows, length = x.transposed ? x.rows : x.columns;
  float* const to = scratch_floats(slot, std::size_t(lines * length));
  for (std::int64_t line = 0; line < lines; ++line) {
    const bf16_t* const from = static_cast<const bf16_t*>(x.data) + line * x.stride;
    float* const row = to + line * length;
    for_lanes(length, [&](std::int64_t i, auto part) { store(row + i, load(from + i, part), part); });
  }
  return {to, DType::f32, x.rows, x.columns, length, x.transposed};
}

// out (+)= sums, rounded once.
void round_into(const MatrixView& out, const float* sums, bool accumulate) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    bf16_t* const row = static_cast<bf16_t*>(out.data) + r * out.stride;
    const float* const from = sums + r * out.columns;
    for_lanes(out.columns, [&](std::int64_t i, auto part) {
      const Lanes x = load(from + i, part);
      store(row + i, accumulate ? load(row + i, part) + x : x, part);
    });
  }
}

}  // namespace

struct TileProducts::Cache {
  std::map<Shape, Primitive> made;
  std::shared_mutex mutex;

  const Primitive& get(const Shape& shape) {
    {
      const std::shared_lock lock(mutex);
      if (const auto found = made.find(shape); found != made.end()) return found->second;
    }
    const std::unique_lock lock(mutex);
    const auto found = made.find(shape);
    return found != made.end() ? found->second : made.emplace(shape, make_primitive(shape)).first->second;
  }

  void run(const MatrixView& out, const MatrixView& a, const MatrixView& b, bool accumulate,
           const float* bias) {
    dnnl::stream& own = stream();  // first: a primitive is made for as many threads as this one may use
    const Primitive& p = get({out.rows, out.columns, a.columns, a.type, out.type, a.stride, b.stride,
                              out.stride, a.transposed, b.transposed, accumulate, bias != nullptr});
    void* const scratch = thread_scratch(ScratchSlot::library, p.scratch.get_size());
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(p.a, engine(), a.data)},
                                              {DNNL_ARG_WEIGHTS, memory(p.b, engine(), b.data)},
                                              {DNNL_ARG_DST, memory(p.out, engine(), out.data)},
                                              {DNNL_ARG_SCRATCHPAD, memory(p.scratch, engine(), scratch)}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, memory(p.bias, engine(), const_cast<float*>(bias)));
    p.product.execute(own, arguments);
  }
};

TileProducts::TileProducts() : cache_(std::make_unique<Cache>()) {}
TileProducts::~TileProducts() = default;

void TileProducts::run(const MatrixView& out, const MatrixView& a, const MatrixView& b, bool accumulate,
                       const float* bias) const {
  CHECK(out.rows == a.rows && out.columns == b.columns && a.columns == b.rows && !out.transposed);
  const bool plain =
      a.type == b.type && (a.type == DType::f32 ? out.type == DType::f32 : has_bf16_products());
  if (plain) return cache_->run(out, a, b, accumulate, bias);

  MatrixView sums = out;
  if (out.type != DType::f32) {
    float* const scratch = scratch_floats(ScratchSlot::widened_out, std::size_t(out.rows * out.columns));
    sums = {scratch, DType::f32, out.rows, out.columns, out.columns};
  }
  for (std::int64_t k = 0; k < a.columns; k += kWidenTile) {
    const std::int64_t size = std::min(kWidenTile, a.columns - k);
    const MatrixView wide_a = widened(a.part(0, a.rows, k, size), ScratchSlot::widened_a);
    const MatrixView wide_b = widened(b.part(k, size, 0, b.columns), ScratchSlot::widened_b);
    const bool adds = k > 0 || (accumulate && out.type == DType::f32);
    cache_->run(sums, wide_a, wide_b, adds, k == 0 ? bias : nullptr);
  }
  if (out.type != DType::f32) round_into(out, static_cast<const float*>(sums.data), accumulate);
}

MatrixView MatrixView::part(std::int64_t r, std::int64_t m, std::int64_t c, std::int64_t n) const {
  const std::int64_t first = transposed ? c * stride + r : r * stride + c;
  return {
      static_cast<std::byte*>(data) + std::size_t(first) * bytes_of(type), type, m, n, stride, transposed};
}

MatrixView matrix(const Tensor& tensor) {
  return {tensor.data(), tensor.dtype(), tensor.size(0), tensor.size(1), tensor.size(1)};
}

bool has_bf16_products() {
  static const bool has = best_cpu_level() == CpuLevel::avx512 && __builtin_cpu_supports("avx512bf16");
  return has;
}

std::string product_library() {
  engine();
  const dnnl_version_t* const version = dnnl_version();
  const char* isa = "other";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      isa = "sse41";
      break;
    case dnnl::cpu_isa::avx:
      isa = "avx";
      break;
    case dnnl::cpu_isa::avx2:
      isa = "avx2";
      break;
    case dnnl::cpu_isa::avx2_vnni:
      isa = "avx2_vnni";
      break;
    case dnnl::cpu_isa::avx512_core:
      isa = "avx512_core";
      break;
    case dnnl::cpu_isa::avx512_core_vnni:
      isa = "avx512_core_vnni";
      break;
    case dnnl::cpu_isa::avx512_core_bf16:
      isa = "avx512_core_bf16";
      break;
    case dnnl::cpu_isa::avx512_core_amx:
      isa = "avx512_core_amx";
      break;
    default:
      break;
  }
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " " + isa;
}

}  // namespace slideway
