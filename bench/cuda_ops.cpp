// Every op that training runs on a GPU, at the shapes of a Llama-3.1-8B layer: time, rate, and the share of what the GPU
// itself does in the same run (a large bf16 product; a copy).
//
//   bench_cuda_ops [rows [rows of a sequence [products | rows | attention | head | lora | parameters]]]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "measure.h"
#include "ops/adamw.h"
#include "ops/ops.h"

namespace slideway {
namespace {

constexpr std::int64_t D = 4096, F = 14336, V = 8192, R = 16;
constexpr Heads kHeads{32, 8, 128};

class Bench {
 public:
  Bench(std::int64_t rows, std::int64_t sequence) : rows_(rows) {
    OpsOptions options{
        .rows = rows, .heads = kHeads, .lora_inputs = F, .lora_outputs = 2 * F, .lora_rank = 8 * R};
    threads_ = std::make_unique<Threads>(1);
    stream_ = device_->make_stream("bench");
    ops_ = make_ops(*device_, *stream_, *threads_, options);
    make_noise();
    for (std::int64_t t = 0; t <= rows; t += sequence) starts_.push_back(std::int32_t(std::min(t, rows)));
    if (starts_.back() != rows) starts_.push_back(std::int32_t(rows));
    for (std::int64_t t = 0; t < rows; ++t) tokens_.push_back(t);
  }
  Ops& ops() { return *ops_; }
  Sequences sequences() const { return {starts_, 0}; }
  Dropout dropout(float p) const { return {.p = p, .seed = 3, .tokens = tokens_}; }

  // A tensor of noise: products of zeros are faster than real ones.
  Tensor noise(DType type, std::initializer_list<std::int64_t> shape) {
    const Tensor measured(noise_.data(), type, shape);
    buffers_.push_back(device_->allocate(measured.bytes()));
    const Buffer& from = type == DType::f32 ? noise_f32_ : noise_;
    for (std::size_t at = 0; at < measured.bytes(); at += from.bytes())
      stream_->copy(buffers_.back().data() + at, from.data(), std::min(from.bytes(), measured.bytes() - at));
    return Tensor(buffers_.back().data(), type, shape);
  }
  Tensor indices(std::int64_t n, std::int32_t most) {
    Buffer pinned = device_->allocate_pinned(std::size_t(n) * 4);
    for (std::int64_t i = 0; i < n; ++i)
      reinterpret_cast<std::int32_t*>(pinned.data())[i] = std::int32_t(i * 7919 % most);
    buffers_.push_back(device_->allocate(pinned.bytes()));
    stream_->copy(buffers_.back().data(), pinned.data(), pinned.bytes());
    stream_->synchronize();
    return Tensor(buffers_.back().data(), DType::i32, {n});
  }
  void forget() {
    stream_->synchronize();
    buffers_.clear();
  }

  double seconds(const std::function<void()>& call) {
    for (int i = 0; i < 2; ++i) call();
    stream_->synchronize();
    const double once = bench::best_seconds([&] { call(), stream_->synchronize(); }, 0, 1);
    const int times = std::max(3, std::min(200, int(0.02 / once)));
    return bench::best_seconds(
               [&] {
                 for (int i = 0; i < times; ++i) call();
                 stream_->synchronize();
               },
               0, 3) /
           times;
  }
  void limits() {
    const Tensor x = noise(DType::bf16, {8192, 8192}), w = noise(DType::bf16, {8192, 8192});
    const Tensor out = noise(DType::bf16, {8192, 8192});
    flops_ = 2.0 * 8192 * 8192 * 8192 / seconds([&] { ops().linear(out, x, w, {}); });
    const std::size_t bytes = std::size_t(1) << 30;
    const Buffer a = device_->allocate(bytes), b = device_->allocate(bytes);
    bytes_ = 2.0 * double(bytes) / seconds([&] { stream_->copy(a.data(), b.data(), bytes); });
    std::printf("%s\n%s\nlimits: bf16 product of 8192^3 %.0f TFLOP/s, copy %.0f GB/s (read and written)\n",
                device_->name().c_str(), ops().numeric_plan().c_str(), flops_ / 1e12, bytes_ / 1e9);
    forget();
  }
  void flops(const char* name, double count, const std::function<void()>& call) {
    const double time = seconds(call);
    std::printf("%-34s %9.3f ms %7.0f TFLOP/s %5.0f %%\n", name, time * 1e3, count / time / 1e12,
                100 * count / time / flops_);
  }
  void bytes(const char* name, double count, const std::function<void()>& call) {
    const double time = seconds(call);
    std::printf("%-34s %9.3f ms %7.0f GB/s    %5.0f %%\n", name, time * 1e3, count / time / 1e9,
                100 * count / time / bytes_);
  }
  std::int64_t rows() const { return rows_; }

 private:
  void make_noise() {
    constexpr std::size_t n = std::size_t(1) << 22;
    Buffer pinned = device_->allocate_pinned(n * 4);
    noise_ = device_->allocate(n * 2);
    noise_f32_ = device_->allocate(n * 4);
    std::uint64_t state = 1;
    auto* const wide = reinterpret_cast<float*>(pinned.data());
    for (std::size_t i = 0; i < n; ++i) {
      double sum = -2;  // four uniform numbers: near enough to a normal one
      for (int k = 0; k < 4; ++k) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += double(state >> 33) * 0x1p-31;
      }
      wide[i] = float(sum) * 0.1f;
    }
    stream_->copy(noise_f32_.data(), wide, n * 4);
    ops().convert(Tensor(noise_.data(), DType::bf16, {std::int64_t(n)}),
                  Tensor(noise_f32_.data(), DType::f32, {std::int64_t(n)}));
    stream_->synchronize();
  }

  std::int64_t rows_;
  std::unique_ptr<Device> device_ = make_cuda_device();
  std::unique_ptr<Threads> threads_;
  Buffer noise_, noise_f32_;
  std::vector<Buffer> buffers_;
  std::vector<std::int32_t> starts_;
  std::vector<std::int64_t> tokens_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  double flops_ = 0, bytes_ = 0;
};

constexpr DType kAct = DType::bf16;

void products(Bench& b) {
  const std::int64_t T = b.rows();
  struct Shape {
    const char* name;
    std::int64_t N, C;
  };
  for (const auto& [name, N, C] :
       {Shape{"qkv", kHeads.row(), D}, {"o", D, D}, {"gate_up", 2 * F, D}, {"down", D, F}}) {
    const Tensor x = b.noise(kAct, {T, C}), w = b.noise(kAct, {N, C}), y = b.noise(kAct, {T, N});
    const Tensor d_x = b.noise(kAct, {T, C}), d_w = b.noise(DType::f32, {N, C});
    const double count = 2.0 * double(T) * double(N) * double(C);
    b.flops((std::string(name) + " linear").c_str(), count, [&] { b.ops().linear(y, x, w, {}); });
    b.flops((std::string(name) + " backward, input").c_str(), count,
            [&] { b.ops().linear_backward_input(d_x, y, w, false); });
    b.flops((std::string(name) + " backward, weight").c_str(), count,
            [&] { b.ops().linear_backward_weight(d_w, {}, y, x); });
    b.forget();
  }
}

void rows(Bench& b) {
  const std::int64_t T = b.rows();
  const double act = 2.0 * double(T);
  const Tensor x = b.noise(kAct, {T, D}), y = b.noise(kAct, {T, D}), d = b.noise(kAct, {T, D});
  const Tensor weight = b.noise(kAct, {D}), d_weight = b.noise(DType::f32, {D}),
               rstd = b.noise(DType::f32, {T});
  b.bytes("rms_norm", act * 2 * D, [&] { b.ops().rms_norm(y, rstd, x, weight, 1e-5f); });
  b.bytes("rms_norm_backward", act * 4 * D,
          [&] { b.ops().rms_norm_backward(d, d_weight, y, x, weight, rstd); });
  b.bytes("add", act * 3 * D, [&] { b.ops().add(x, y); });
  b.forget();
  const Tensor qkv = b.noise(kAct, {T, kHeads.row()}), positions = b.indices(T, 4096);
  const Tensor inv_freq = b.noise(DType::f32, {kHeads.width / 2}), q_weight = b.noise(kAct, {kHeads.width});
  const Tensor normed = b.noise(kAct, {T, kHeads.row()});
  const Tensor head_rstd = b.noise(DType::f32, {T, kHeads.query + kHeads.key_value});
  const Tensor d_q = b.noise(DType::f32, {kHeads.width}), d_k = b.noise(DType::f32, {kHeads.width});
  const double turned = act * 2 * (kHeads.query + kHeads.key_value) * kHeads.width;
  b.bytes("rope", turned, [&] { b.ops().rope(qkv, kHeads, positions, inv_freq, 1, false); });
  b.bytes("head_norm", act * 2 * double(kHeads.row()),
          [&] { b.ops().head_norm(normed, head_rstd, qkv, kHeads, q_weight, q_weight, 1e-5f); });
  b.bytes("head_norm_backward", turned * 1.5,
          [&] { b.ops().head_norm_backward(normed, d_q, d_k, qkv, head_rstd, kHeads, q_weight, q_weight); });
  b.forget();
  const Tensor gate_up = b.noise(kAct, {T, 2 * F}), d_gate_up = b.noise(kAct, {T, 2 * F});
  const Tensor act_out = b.noise(kAct, {T, F});
  b.bytes("swiglu", act * 3 * F, [&] { b.ops().swiglu(act_out, gate_up); });
  b.bytes("swiglu_backward", act * 5 * F, [&] { b.ops().swiglu_backward(d_gate_up, act_out, gate_up); });
  b.forget();
}

void attention(Bench& b) {
  const std::int64_t T = b.rows();
  const Tensor qkv = b.noise(kAct, {T, kHeads.row()}), d_qkv = b.noise(kAct, {T, kHeads.row()});
  const Tensor out = b.noise(kAct, {T, D}), d_out = b.noise(kAct, {T, D});
  const Tensor lse = b.noise(DType::f32, {kHeads.query, T});
  double pairs = 0;
  const Sequences s = b.sequences();
  for (std::size_t n = 1; n < s.starts.size(); ++n) {
    const double rows = s.starts[n] - s.starts[n - 1];
    pairs += rows * (rows + 1) / 2;
  }
  const double count = 4 * pairs * D;
  const float scale = 1 / std::sqrt(128.0f);
  b.flops("attention", count, [&] { b.ops().attention(out, lse, qkv, kHeads, s, scale); });
  b.flops("attention_backward", 2.5 * count,
          [&] { b.ops().attention_backward(d_qkv, d_out, out, lse, qkv, kHeads, s, scale); });
  b.forget();
}

void head(Bench& b) {
  for (const std::int64_t T : {std::int64_t(256), std::int64_t(2048)}) {
    const Tensor logits = b.noise(DType::f32, {T, V}), targets = b.indices(T, V), d = b.noise(kAct, {T, V});
    const Tensor max_sum = b.noise(DType::f32, {T, 2}), at_target = b.noise(DType::f32, {T});
    const Tensor h = b.noise(kAct, {T, D}), w = b.noise(kAct, {V, D}), d_h = b.noise(DType::f32, {T, D});
    const Tensor d_w = b.noise(DType::f32, {V, D});
    const std::string rows = ", " + std::to_string(T) + " rows";
    const double count = 2.0 * double(T) * V * D, size = double(T) * V;
    b.flops(("logits" + rows).c_str(), count, [&] { b.ops().linear(logits, h, w, {}); });
    b.bytes(("cross_entropy_tile" + rows).c_str(), 4 * size,
            [&] { b.ops().cross_entropy_tile(max_sum, at_target, logits, targets, 0); });
    b.bytes(("cross_entropy_backward" + rows).c_str(), 6 * size,
            [&] { b.ops().cross_entropy_backward(d, logits, max_sum, targets, 0, 1e-3f); });
    b.flops(("d_h" + rows).c_str(), count, [&] { b.ops().linear_backward_input(d_h, d, w, true); });
    b.flops(("d_w" + rows).c_str(), count, [&] { b.ops().linear_backward_weight(d_w, {}, d, h); });
    b.forget();
  }
}

void lora(Bench& b) {
  const std::int64_t T = b.rows(), E = kHeads.width;
  struct Shape {
    const char* name;
    std::int64_t C;
    std::vector<std::int64_t> outputs;
  };
  for (const auto& [name, C, outputs] :
       {Shape{"qkv", D, {kHeads.query * E, kHeads.key_value * E, kHeads.key_value * E}},
        {"gate_up", D, {F, F}},
        {"down", F, {D}}}) {
    std::int64_t width = 0, ranks = 0;
    std::vector<LoraPart> parts;
    for (const std::int64_t N : outputs) {
      parts.push_back({.a = b.noise(DType::f32, {R, C}),
                       .b = b.noise(DType::f32, {N, R}),
                       .row_end = T,
                       .out_column = width,
                       .v_column = ranks,
                       .d_a = b.noise(DType::f32, {R, C}),
                       .d_b = b.noise(DType::f32, {N, R}),
                       .dropout_key = parts.size()});
      width += N;
      ranks += R;
    }
    const LoraTarget target{parts, ranks};
    const Tensor x = b.noise(kAct, {T, C}), d_x = b.noise(kAct, {T, C}), y = b.noise(kAct, {T, width});
    const Tensor v = b.noise(DType::f32, {T, ranks});
    const double in = 2.0 * double(T) * double(C), out = 2.0 * double(T) * double(width);
    for (const float p : {0.0f, 0.1f}) {
      const std::string what = std::string(name) + (p > 0 ? ", dropout" : "");
      b.bytes(("lora_shrink " + what).c_str(), in, [&] { b.ops().lora_shrink(v, x, target, b.dropout(p)); });
      if (p == 0)
        b.bytes(("lora_expand " + what).c_str(), 2 * out, [&] { b.ops().lora_expand(y, v, target); });
      b.bytes(("lora_backward " + what).c_str(), 3 * in + out,
              [&] { b.ops().lora_backward(d_x, y, x, v, target, b.dropout(p)); });
    }
    b.forget();
  }
}

void parameters(Bench& b) {
  constexpr std::int64_t n = std::int64_t(D) * 2 * F;
  const Tensor wide = b.noise(DType::f32, {n}), half = b.noise(kAct, {n}), total = b.noise(DType::f32, {2});
  const Tensor m = b.noise(DType::f32, {n}), v = b.noise(DType::f32, {n}), lo = b.noise(kAct, {n});
  const Tensor sum(total.data(), DType::f64, {1}), low(lo.data(), DType::i16, {n});
  b.bytes("fill_zero", 4.0 * n, [&] { b.ops().fill_zero(m); });
  b.bytes("convert f32 to bf16", 6.0 * n, [&] { b.ops().convert(half, wide); });
  b.bytes("sum_of_squares bf16", 2.0 * n, [&] { b.ops().sum_of_squares(sum, half); });
  b.bytes("sum_of_squares f32", 4.0 * n, [&] { b.ops().sum_of_squares(sum, wide); });
  b.bytes("join", 8.0 * n, [&] { b.ops().join(wide, half, low); });
  b.ops().fill_zero(v);
  const AdamwRange range{
      half.bf16(), static_cast<std::int16_t*>(low.data()), m.f32(), v.f32(), wide.data(), DType::f32, n};
  b.bytes("adamw, f32 gradients", 28.0 * n,
          [&] { b.ops().adamw(range, adamw_step({}, 1e-5, 0, 1, 3), AdamwPiece::whole); });
  b.forget();
}

}  // namespace
}  // namespace slideway

int main(int count, char** words) {
  const std::int64_t rows = count > 1 ? std::atoll(words[1]) : 8192;
  const std::int64_t sequence = count > 2 ? std::atoll(words[2]) : 4096;
  const std::string section = count > 3 ? words[3] : "";
  slideway::Bench bench(rows, sequence);
  std::printf("%lld rows in sequences of %lld\n", static_cast<long long>(rows),
              static_cast<long long>(sequence));
  bench.limits();
  const std::pair<const char*, void (*)(slideway::Bench&)> sections[] = {
      {"products", slideway::products}, {"rows", slideway::rows}, {"attention", slideway::attention},
      {"head", slideway::head},         {"lora", slideway::lora}, {"parameters", slideway::parameters}};
  for (const auto& [name, run] : sections)
    if (section.empty() || section == name) run(bench);
}
