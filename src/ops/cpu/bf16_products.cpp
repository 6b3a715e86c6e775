#include "ops/cpu/bf16_products.h"

#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

#include "ops/cpu/cpu_level.h"
#include "ops/cpu/scratch.h"

namespace slideway {
namespace {

using dnnl::memory;

// All that decides which primitive a product needs.
struct Shape {
  std::int64_t m, n, k;
  DType out_type;
  std::int64_t a_stride, b_stride, out_stride;
  bool a_turned, b_turned, accumulate, bias;

  auto key() const {
    return std::tuple(m, n, k, out_type, a_stride, b_stride, out_stride, a_turned, b_turned, accumulate,
                      bias);
  }
  bool operator<(const Shape& other) const { return key() < other.key(); }
};

struct Primitive {
  memory::desc a, b, out, bias, scratch;
  dnnl::matmul product;
};

memory::desc description(std::int64_t rows, std::int64_t columns, DType type, std::int64_t stride,
                         bool turned) {
  const auto number = type == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
  return memory::desc({rows, columns}, number, turned ? memory::dims{1, stride} : memory::dims{stride, 1});
}

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
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
  made.a = description(s.m, s.k, DType::bf16, s.a_stride, s.a_turned);
  made.b = description(s.k, s.n, DType::bf16, s.b_stride, s.b_turned);
  made.out = description(s.m, s.n, s.out_type, s.out_stride, false);
  made.bias = description(1, s.n, DType::f32, s.n, false);
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

const char* isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "without bf16";
  }
}

}  // namespace

struct Bf16Products::Cache {
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
};

Bf16Products::Bf16Products() : cache_(std::make_unique<Cache>()) {}
Bf16Products::~Bf16Products() = default;

void Bf16Products::run(const MatrixView& out, const MatrixView& a, const MatrixView& b, bool accumulate,
                       const float* bias) const {
  dnnl::stream& own = stream();  // first: a primitive is made for as many threads as this one may use
  const Primitive& p = cache_->get({out.rows, out.columns, a.columns, out.type, a.stride, b.stride,
                                    out.stride, a.turned, b.turned, accumulate, bias != nullptr});
  void* const scratch = thread_scratch(ScratchSlot::library, p.scratch.get_size());
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(p.a, engine(), a.data)},
                                            {DNNL_ARG_WEIGHTS, memory(p.b, engine(), b.data)},
                                            {DNNL_ARG_DST, memory(p.out, engine(), out.data)},
                                            {DNNL_ARG_SCRATCHPAD, memory(p.scratch, engine(), scratch)}};
  if (bias) arguments.emplace(DNNL_ARG_BIAS, memory(p.bias, engine(), const_cast<float*>(bias)));
  p.product.execute(own, arguments);
}

bool has_bf16_products() {
  static const bool has = best_cpu_level() == CpuLevel::avx512 && __builtin_cpu_supports("avx512bf16");
  return has;
}

std::string bf16_product_library() {
  const dnnl_version_t* const version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " " + isa_name();
}

}  // namespace slideway
