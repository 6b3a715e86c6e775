#include "ops/cuda/products.h"

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <map>

#include "device/cuda/check.h"

namespace slideway {
namespace {

void check_library(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorKind::device, call, ": ", cublasLtGetStatusName(status), ": ", cublasLtGetStatusString(status));
}
#define LIBRARY_CHECK(call) check_library((call), #call)

cudaDataType_t library_type(DType type) {
  CHECK(type == DType::f32 || type == DType::bf16);
  return type == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

// What the library may rely on: the largest power of two up to 16 that divides the address.
int alignment(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return int(std::min<std::uintptr_t>(16, address & (~address + 1)));
}

// Owns one of the library's descriptions.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Held {
 public:
  Held() = default;
  Held(Held&& other) noexcept { std::swap(handle_, other.handle_); }
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (handle_) kDestroy(handle_);
  }
  Handle* place() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Description = Held<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Held<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Held<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr std::size_t kMostMade = 4096;  // shapes remembered; then all are forgotten

struct Key {
  std::int64_t m, n, k, out_stride, a_stride, b_stride;
  DType out_type, type;
  bool a_turned, b_turned, accumulate, bias;
  int out_align, a_align, b_align;
  auto operator<=>(const Key&) const = default;
};

struct Made {
  Description description;
  Layout a, b, out;
  cublasLtMatmulAlgo_t algorithm;
  bool possible = false;
};

}  // namespace

struct Products::Library {
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Made> made;

  Library() { LIBRARY_CHECK(cublasLtCreate(&handle)); }
  ~Library() {
    made.clear();
    if (handle) cublasLtDestroy(handle);
  }
  const Made& made_for(const Product& product, const Key& key, std::size_t workspace);
};

Products::Products(std::span<std::byte> workspace)
    : workspace_(workspace), library_(std::make_unique<Library>()) {}

Products::~Products() = default;

std::string Products::library() {
  const std::size_t v = cublasLtGetVersion();  // major · 10000 + minor · 100 + patch
  return "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

// The library's matrices are column-major: a row-major matrix is its transpose. So outᵀ = bᵀ aᵀ is computed, with b as
// the library's first matrix, and what is not turned for us is not turned for it.
const Made& Products::Library::made_for(const Product& p, const Key& key, std::size_t workspace) {
  if (const auto found = made.find(key); found != made.end()) return found->second;
  if (made.size() >= kMostMade) made.clear();
  Made& now = made[key];
  LIBRARY_CHECK(cublasLtMatmulDescCreate(now.description.place(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    LIBRARY_CHECK(cublasLtMatmulDescSetAttribute(now.description, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t(library_type(p.out_type)));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const auto layout = [](Layout& to, DType type, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride) {
    LIBRARY_CHECK(cublasLtMatrixLayoutCreate(to.place(), library_type(type), std::uint64_t(rows),
                                             std::uint64_t(columns), stride));
  };
  layout(now.a, p.b.type, p.b.turned ? p.k : p.n, p.b.turned ? p.n : p.k, p.b.stride);
  layout(now.b, p.a.type, p.a.turned ? p.m : p.k, p.a.turned ? p.k : p.m, p.a.stride);
  layout(now.out, p.out_type, p.n, p.m, p.out_stride);

  Preference preference;
  LIBRARY_CHECK(cublasLtMatmulPreferenceCreate(preference.place()));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    LIBRARY_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(workspace));
  // Where a product is cut along k, its parts are added in f32: never in the output's type, which would round twice.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t(key.b_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t(key.a_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t(key.out_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t(key.out_align));
  cublasLtMatmulHeuristicResult_t first{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, now.description, now.a, now.b, now.out,
                                                               now.out, preference, 1, &first, &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) LIBRARY_CHECK(status);
  now.possible = status == CUBLAS_STATUS_SUCCESS && count > 0 && first.state == CUBLAS_STATUS_SUCCESS;
  now.algorithm = first.algo;
  return now;
}

bool Products::run(const Product& p, cudaStream_t stream) {
  CHECK(p.a.type == p.b.type);
  const Key key{p.m,
                p.n,
                p.k,
                p.out_stride,
                p.a.stride,
                p.b.stride,
                p.out_type,
                p.a.type,
                p.a.turned,
                p.b.turned,
                p.accumulate,
                p.bias != nullptr,
                alignment(p.out),
                alignment(p.a.data),
                alignment(p.b.data)};
  const Made& made = library_->made_for(p, key, workspace_.size());
  if (!made.possible) return false;
  if (p.bias)
    LIBRARY_CHECK(cublasLtMatmulDescSetAttribute(made.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias,
                                                 sizeof p.bias));
  const float beta = p.accumulate ? 1 : 0;
  LIBRARY_CHECK(cublasLtMatmul(library_->handle, made.description, &p.alpha, p.b.data, made.a, p.a.data,
                               made.b, &beta, p.out, made.out, p.out, made.out, &made.algorithm,
                               workspace_.data(), workspace_.size(), stream));
  return true;
}

}  // namespace slideway
