#include "ops/cuda/cudnn.h"

#include <dlfcn.h>

#include <algorithm>
#include <compare>
#include <map>

#include "device/cuda/check.h"
#include "ops/cuda/attention_tile.h"
#include "ops/cuda_workspace.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the front end looks the library's functions up in it
}

namespace slideway {
namespace {

namespace fe = cudnn_frontend;
namespace graph = cudnn_frontend::graph;
using Attributes = std::shared_ptr<graph::Tensor_attributes>;

enum Uid : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kRowStarts,
  kOutStarts,
  kStatStarts,
  kLengths,
  kDO,
  kDQ,
  kDK,
  kDV
};

// A plan serves every call whose sequences are as many and as long as these, rounded up.
struct Key {
  std::int64_t batch, longest;
  int heads, kv_heads, width, window;
  float scale;
  bool backward;
  auto operator<=>(const Key&) const = default;
};

constexpr std::size_t kMostPlans = 256;  // remembered; then all are made anew

struct Plan {
  std::unique_ptr<graph::Graph> graph;  // null: cuDNN does not take it
  std::size_t workspace = 0;
  std::int64_t batch = 0;
};

class Frontend final : public CudnnAttention {
 public:
  Frontend(std::span<std::byte> workspace, cudaStream_t stream) : workspace_(workspace), stream_(stream) {
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS ||
        fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS)
      fail(ErrorKind::device, cudnn_library(), " cannot be used");
  }
  ~Frontend() override {
    plans_.clear();
    if (handle_) fe::detail::destroy_handle(handle_);
  }

  bool forward(const Call& call, HostData& host_data) override { return run(call, host_data, false); }
  bool backward(const Call& call, HostData& host_data) override { return run(call, host_data, true); }

 private:
  // Sequences [first, last) of a call, for one execution.
  struct Group {
    std::size_t first, last;
    Plan* plan;
  };

  bool run(const Call& call, HostData& host_data, bool backward) {
    const std::int64_t T = call.qkv.size(0);
    const int H = call.heads.query, E = call.heads.width;
    if (call.qkv.dtype() != DType::bf16 || E % 8 != 0 || E > 128 || T * call.heads.row() > INT32_MAX)
      return false;
    const std::size_t statistics_bytes = (std::size_t(T) * std::size_t(H) * sizeof(float) + 255) / 256 * 256;
    if (statistics_bytes > workspace_.size()) return false;
    const std::span<std::byte> rest = workspace_.subspan(statistics_bytes);
    if (plans_.size() >= kMostPlans) plans_.clear();
    std::vector<Group> groups;
    if (!cut(groups, call, rest.size(), backward)) return false;

    auto* const statistics = reinterpret_cast<float*>(workspace_.data());  // [T, H]
    if (backward) turn_numbers(statistics, call.lse.f32(), H, T, stream_);
    for (const Group& group : groups) execute(call, group, statistics, rest, host_data, backward);
    if (!backward) turn_numbers(call.lse.f32(), statistics, T, H, stream_);
    return true;
  }

  // As many sequences at a time as the workspace allows; false where one alone is too long, or not taken.
  bool cut(std::vector<Group>& groups, const Call& call, std::size_t room, bool backward) {
    const auto starts = call.sequences.starts;
    const auto length = [&](std::size_t n) { return std::int64_t(starts[n + 1] - starts[n]); };
    for (std::size_t n = 0; n + 1 < starts.size();) {
      Group group{n, n, nullptr};
      Key key{};
      std::int64_t longest = 1;
      for (; group.last + 1 < starts.size(); ++group.last) {
        longest = std::max(longest, length(group.last));
        const Key larger{cudnn_size(std::int64_t(group.last + 1 - group.first)),
                         std::max<std::int64_t>(128, cudnn_size(longest)),
                         call.heads.query,
                         call.heads.key_value,
                         call.heads.width,
                         call.sequences.window,
                         call.scale,
                         backward};
        if (backward && cudnn_backward_bytes(larger.batch, larger.longest, larger.heads, larger.width) > room)
          break;
        key = larger;
      }
      if (group.last == group.first) return false;
      group.plan = &plan_for(key);
      if (!group.plan->graph || group.plan->workspace > room) return false;
      groups.push_back(group);
      n = group.last;
    }
    return true;
  }

  void execute(const Call& call, const Group& group, float* statistics, std::span<std::byte> workspace,
               HostData& host_data, bool backward) {
    const auto starts = call.sequences.starts;
    const int H = call.heads.query, K = call.heads.key_value;
    const std::int64_t row = call.heads.row(), out_row = std::int64_t(H) * call.heads.width;
    std::vector<std::int32_t> rows, outs, stats, lengths;
    for (std::int64_t i = 0; i <= group.plan->batch; ++i) {  // sequences beyond the group's are empty
      const std::size_t n = std::min(group.last, group.first + std::size_t(i));
      rows.push_back(std::int32_t(starts[n] * row));
      outs.push_back(std::int32_t(starts[n] * out_row));
      stats.push_back(starts[n] * H);
      if (i < group.plan->batch) lengths.push_back(n < group.last ? starts[n + 1] - starts[n] : 0);
    }
    const auto put = [&](const std::vector<std::int32_t>& table) {
      return const_cast<std::int32_t*>(host_data.put(std::span<const std::int32_t>(table)));
    };
    const auto part = [&](const Tensor& qkv, int heads) {
      return qkv.bf16() + std::int64_t(heads) * call.heads.width;
    };
    std::unordered_map<std::int64_t, void*> memory = {
        {kQ, part(call.qkv, 0)}, {kK, part(call.qkv, H)},   {kV, part(call.qkv, H + K)},
        {kO, call.out.data()},   {kStats, statistics},      {kRowStarts, put(rows)},
        {kOutStarts, put(outs)}, {kStatStarts, put(stats)}, {kLengths, put(lengths)}};
    if (backward) {
      memory[kDO] = call.d_out.data();
      memory[kDQ] = part(call.d_qkv, 0);
      memory[kDK] = part(call.d_qkv, H);
      memory[kDV] = part(call.d_qkv, H + K);
    }
    auto result = group.plan->graph->execute(handle_, memory, workspace.data());
    if (result.is_bad()) fail(ErrorKind::device, cudnn_library(), ": ", result.get_message());
  }

  Plan& plan_for(const Key& key) {
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
    Plan& plan = plans_[key];
    plan.batch = key.batch;
    try {
      auto made = build(key);
      std::int64_t bytes = 0;
      if (made->build(handle_, {fe::HeurMode_t::A}).is_good() && made->get_workspace_size(bytes).is_good()) {
        plan.graph = std::move(made);
        plan.workspace = std::size_t(bytes);
      }
    } catch (const std::exception&) {
      // The front end could not find what it needs: our own kernels run.
    }
    return plan;
  }

  std::unique_ptr<graph::Graph> build(const Key& k) {
    auto g = std::make_unique<graph::Graph>();
    g->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto indices = [&](Uid uid, std::int64_t n) {
      return g->tensor(graph::Tensor_attributes()
                           .set_uid(uid)
                           .set_dim({n, 1, 1, 1})
                           .set_stride({1, 1, 1, 1})
                           .set_data_type(fe::DataType_t::INT32));
    };
    const std::int64_t S = k.longest, E = k.width;
    const std::int64_t row = std::int64_t(k.heads + 2 * k.kv_heads) * E, out_row = std::int64_t(k.heads) * E;
    const Attributes row_starts = indices(kRowStarts, k.batch + 1),
                     out_starts = indices(kOutStarts, k.batch + 1),
                     stat_starts = indices(kStatStarts, k.batch + 1), lengths = indices(kLengths, k.batch);
    const auto shaped = [&](graph::Tensor_attributes& t, Uid uid, std::int64_t heads, std::int64_t stride,
                            const Attributes& starts) {
      t.set_uid(uid)
          .set_dim({k.batch, heads, S, E})
          .set_stride({S * stride, E, stride, 1})
          .set_ragged_offset(starts);
    };
    const auto input = [&](Uid uid, std::int64_t heads, std::int64_t stride, const Attributes& starts) {
      graph::Tensor_attributes t;
      shaped(t, uid, heads, stride, starts);
      return g->tensor(t);
    };
    const auto statistics = [&](graph::Tensor_attributes& t) {
      t.set_uid(kStats)
          .set_dim({k.batch, k.heads, S, 1})
          .set_stride({S * k.heads, 1, k.heads, 1})
          .set_ragged_offset(stat_starts)
          .set_data_type(fe::DataType_t::FLOAT);
    };
    const auto masked = [&](auto& options) {
      options.set_attn_scale(k.scale)
          .set_padding_mask(true)
          .set_seq_len_q(lengths)
          .set_seq_len_kv(lengths)
          .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_right_bound(0);
      if (k.window > 0) options.set_diagonal_band_left_bound(k.window);
    };
    const Attributes q = input(kQ, k.heads, row, row_starts), key = input(kK, k.kv_heads, row, row_starts),
                     value = input(kV, k.kv_heads, row, row_starts);
    if (!k.backward) {
      graph::SDPA_attributes options;
      options.set_name("attention").set_generate_stats(true);
      masked(options);
      auto [o, stats] = g->sdpa(q, key, value, options);
      shaped(*o, kO, k.heads, out_row, out_starts);
      o->set_output(true);
      statistics(*stats);
      stats->set_output(true);
      return g;
    }
    const Attributes o = input(kO, k.heads, out_row, out_starts),
                     d_o = input(kDO, k.heads, out_row, out_starts);
    graph::Tensor_attributes stats;
    statistics(stats);
    graph::SDPA_backward_attributes options;
    options.set_name("attention_backward").set_deterministic_algorithm(true);
    masked(options);
    auto [d_q, d_k, d_v] = g->sdpa_backward(q, key, value, o, d_o, g->tensor(stats), options);
    shaped(*d_q, kDQ, k.heads, row, row_starts);
    shaped(*d_k, kDK, k.kv_heads, row, row_starts);
    shaped(*d_v, kDV, k.kv_heads, row, row_starts);
    for (const Attributes& each : {d_q, d_k, d_v}) each->set_output(true);
    return g;
  }

  std::span<std::byte> workspace_;
  cudaStream_t stream_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace

std::string cudnn_library() {
  // The front end calls the shared CUDA runtime, and would take an older one that it finds first.
  const std::string runtime = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.c_str(), 0);
  if (!fe::cudnn_dlhandle && dlopen(runtime.c_str(), RTLD_NOW | RTLD_LOCAL))
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!fe::cudnn_dlhandle) return {};
  const auto v = fe::detail::get_backend_version();  // major · 10000 + minor · 100 + patch
  return "cuDNN " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

std::unique_ptr<CudnnAttention> make_cudnn_attention(std::span<std::byte> workspace, cudaStream_t stream) {
  if (workspace.empty() || cudnn_library().empty()) return nullptr;
  return std::make_unique<Frontend>(workspace, stream);
}

}  // namespace slideway
