// TimedOps: passes every call on to other Ops and notes how long its work took, so that a bench can say where the time
// goes. It waits for the stream after each call: nothing overlaps while it measures.
//
// Threads  one at a time
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace slideway {

// Seconds, calls and multiply-adds by op.
class OpTimes {
 public:
  void add(const std::string& op, double seconds, double flops) {
    Line& line = lines_[op];
    line.seconds += seconds;
    line.flops += flops;
    ++line.calls;
  }
  double seconds() const {
    double sum = 0;
    for (const auto& [op, line] : lines_) sum += line.seconds;
    return sum;
  }
  // The longest first.
  void print() const {
    std::vector<std::pair<std::string, Line>> lines(lines_.begin(), lines_.end());
    std::sort(lines.begin(), lines.end(),
              [](auto& a, auto& b) { return a.second.seconds > b.second.seconds; });
    std::printf("%-38s %7s %10s %7s %9s\n", "op", "calls", "ms", "share", "GFLOP/s");
    for (const auto& [op, line] : lines) {
      std::printf("%-38s %7d %10.2f %6.1f%%", op.c_str(), line.calls, line.seconds * 1e3,
                  100 * line.seconds / seconds());
      if (line.flops > 0) std::printf(" %9.1f", line.flops / line.seconds * 1e-9);
      std::printf("\n");
    }
  }
  // Of each op the faster of the two runs: neighbours on the machine only ever slow one down.
  void keep_faster(const OpTimes& other) {
    for (const auto& [op, line] : other.lines_) {
      const auto [mine, added] = lines_.try_emplace(op, line);
      if (!added && line.seconds < mine->second.seconds) mine->second = line;
    }
  }

 private:
  struct Line {
    double seconds = 0, flops = 0;
    int calls = 0;
  };
  std::map<std::string, Line> lines_;
};

class TimedOps final : public Ops {
 public:
  TimedOps(std::unique_ptr<Ops> ops, Stream& stream, OpTimes& times)
      : ops_(std::move(ops)), stream_(stream), times_(times) {}

  void linear(Tensor out, Tensor x, Tensor w, Tensor bias) override {
    time("linear " + shape_text(w), product(x, w), [&] { ops_->linear(out, x, w, bias); });
  }
  void linear_backward_input(Tensor d_x, Tensor d_out, Tensor w, bool accumulate) override {
    time("linear_backward_input " + shape_text(w), product(d_out, w),
         [&] { ops_->linear_backward_input(d_x, d_out, w, accumulate); });
  }
  void linear_backward_weight(Tensor d_w, Tensor d_bias, Tensor d_out, Tensor x) override {
    time("linear_backward_weight " + shape_text(d_w), product(d_out, d_w),
         [&] { ops_->linear_backward_weight(d_w, d_bias, d_out, x); });
  }
  void rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor weight, float eps) override {
    time("rms_norm", 0, [&] { ops_->rms_norm(out, rstd, x, weight, eps); });
  }
  void rms_norm_backward(Tensor d_x, Tensor d_weight, Tensor d_out, Tensor x, Tensor weight,
                         Tensor rstd) override {
    time("rms_norm_backward", 0, [&] { ops_->rms_norm_backward(d_x, d_weight, d_out, x, weight, rstd); });
  }
  void add(Tensor x, Tensor y) override {
    time("add", 0, [&] { ops_->add(x, y); });
  }
  void head_norm(Tensor out, Tensor rstd, Tensor qkv, Heads heads, Tensor q_weight, Tensor k_weight,
                 float eps) override {
    time("head_norm", 0, [&] { ops_->head_norm(out, rstd, qkv, heads, q_weight, k_weight, eps); });
  }
  void head_norm_backward(Tensor d_qkv, Tensor d_q_weight, Tensor d_k_weight, Tensor qkv, Tensor rstd,
                          Heads heads, Tensor q_weight, Tensor k_weight) override {
    time("head_norm_backward", 0, [&] {
      ops_->head_norm_backward(d_qkv, d_q_weight, d_k_weight, qkv, rstd, heads, q_weight, k_weight);
    });
  }
  void rope(Tensor qkv, Heads heads, Tensor positions, Tensor inv_freq, float attention_factor,
            bool backward) override {
    time("rope", 0, [&] { ops_->rope(qkv, heads, positions, inv_freq, attention_factor, backward); });
  }
  void swiglu(Tensor out, Tensor gate_up) override {
    time("swiglu", 0, [&] { ops_->swiglu(out, gate_up); });
  }
  void swiglu_backward(Tensor d_gate_up, Tensor d_out, Tensor gate_up) override {
    time("swiglu_backward", 0, [&] { ops_->swiglu_backward(d_gate_up, d_out, gate_up); });
  }
  void attention(Tensor out, Tensor lse, Tensor qkv, Heads heads, const Sequences& sequences,
                 float scale) override {
    time("attention", 4 * scores(heads, sequences),
         [&] { ops_->attention(out, lse, qkv, heads, sequences, scale); });
  }
  void attention_backward(Tensor d_qkv, Tensor d_out, Tensor out, Tensor lse, Tensor qkv, Heads heads,
                          const Sequences& sequences, float scale) override {
    time("attention_backward", 10 * scores(heads, sequences),
         [&] { ops_->attention_backward(d_qkv, d_out, out, lse, qkv, heads, sequences, scale); });
  }
  void write_kv(const PagedKv& kv, Tensor qkv, Heads heads) override {
    time("write_kv", 0, [&] { ops_->write_kv(kv, qkv, heads); });
  }
  void paged_attention(Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale) override {
    time("paged_attention", 0, [&] { ops_->paged_attention(out, qkv, heads, kv, scale); });
  }
  void embed(Tensor out, Tensor table, Tensor ids) override {
    time("embed", 0, [&] { ops_->embed(out, table, ids); });
  }
  void embed_backward(Tensor d_table, Tensor d_out, Tensor ids) override {
    time("embed_backward", 0, [&] { ops_->embed_backward(d_table, d_out, ids); });
  }
  void cross_entropy_tile(Tensor max_sum, Tensor target_logit, Tensor logits, Tensor targets,
                          std::int64_t tile_begin) override {
    time("cross_entropy_tile", 0,
         [&] { ops_->cross_entropy_tile(max_sum, target_logit, logits, targets, tile_begin); });
  }
  void cross_entropy_loss(Tensor losses, Tensor max_sum, Tensor target_logit, Tensor targets) override {
    time("cross_entropy_loss", 0, [&] { ops_->cross_entropy_loss(losses, max_sum, target_logit, targets); });
  }
  void cross_entropy_backward(Tensor d_logits, Tensor logits, Tensor max_sum, Tensor targets,
                              std::int64_t tile_begin, float weight) override {
    time("cross_entropy_backward", 0,
         [&] { ops_->cross_entropy_backward(d_logits, logits, max_sum, targets, tile_begin, weight); });
  }
  void lora_shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout) override {
    time("lora_shrink", 0, [&] { ops_->lora_shrink(v, x, lora, dropout); });
  }
  void lora_expand(Tensor y, Tensor v, const LoraTarget& lora) override {
    time("lora_expand", 0, [&] { ops_->lora_expand(y, v, lora); });
  }
  void lora_backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                     const Dropout& dropout) override {
    time("lora_backward", 0, [&] { ops_->lora_backward(d_x, d_y, x, v, lora, dropout); });
  }
  void fill_zero(Tensor x) override {
    time("fill_zero", 0, [&] { ops_->fill_zero(x); });
  }
  void convert(Tensor out, Tensor x) override {
    time("convert", 0, [&] { ops_->convert(out, x); });
  }
  void join(Tensor out, Tensor hi, Tensor lo) override {
    time("join", 0, [&] { ops_->join(out, hi, lo); });
  }
  void adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) override {
    time("adamw", 0, [&] { ops_->adamw(range, step, piece); });
  }
  void sum_of_squares(Tensor out, Tensor x) override {
    time("sum_of_squares", 0, [&] { ops_->sum_of_squares(out, x); });
  }
  DType preferred_activation() const override { return ops_->preferred_activation(); }
  std::string numeric_plan() const override { return ops_->numeric_plan(); }

 private:
  template <class Call>
  void time(const std::string& op, double flops, const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    stream_.synchronize();
    times_.add(op, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), flops);
  }
  static double product(const Tensor& rows, const Tensor& w) {
    return 2.0 * double(rows.size(0)) * double(w.elements());
  }
  // Multiply-adds of one product of all scores that the causal mask lets through.
  static double scores(const Heads& heads, const Sequences& sequences) {
    double pairs = 0;
    for (std::size_t n = 0; n + 1 < sequences.starts.size(); ++n) {
      const double rows = sequences.starts[n + 1] - sequences.starts[n];
      const double seen = sequences.window > 0 ? std::min<double>(sequences.window, rows) : rows;
      pairs += rows * seen - seen * (seen - 1) / 2;
    }
    return pairs * heads.query * heads.width;
  }

  std::unique_ptr<Ops> ops_;
  Stream& stream_;
  OpTimes& times_;
};

}  // namespace slideway
