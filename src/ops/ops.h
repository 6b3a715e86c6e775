// Ops: every computation on a device, with its formula and shapes.
//
// An Ops is bound to one stream of its device: calls are issued in order and may return before the work is done.
// Views must stay valid until then. Shapes are checked at the call (ops/shapes.cpp), the same for every backend.
//
// Letters: T tokens (rows), D model width, H heads, K key-value heads, E head width, F feed-forward width,
// V vocabulary, N sequences (or outputs of a product), C inputs of a product, R LoRA rank, P tokens a page.
// "act" is the activation type, f32 or bf16: all act tensors of one call agree. Sums are in f32 inside, and results
// are rounded once (on CUDA a bf16 product may be rounded before it is added to something). Weights are f32 or bf16 and may be narrower than act.
//
// Gradients: those of weights (d_weight, d_bias, d_a, d_b: always f32) are *added to*; those of activations are
// overwritten, unless a line says "+=". Every order of sums depends on the shapes alone: never on threads or timing.
//
// Threads  one at a time
// Errors   internal for wrong shapes or types (callers validate input); device
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "tensor/tensor.h"

namespace slideway {

class Threads;
struct AdamwRange;
struct AdamwStep;
enum class AdamwPiece;

// Which rows belong to which sequence: rows [starts[n], starts[n + 1]) are sequence n. What the span points at must stay
// as it is until the work is done, as with tensors.
struct Sequences {
  std::span<const std::int32_t> starts;  // [N + 1], from 0 to T
  int window = 0;                        // sliding window: a query sees itself and window − 1 before; 0: all
};

// The heads inside a fused projection's row: H query heads, then K key heads, then K value heads, E numbers each.
struct Heads {
  int query = 0;      // H
  int key_value = 0;  // K, divides H
  int width = 0;      // E
  constexpr std::int64_t row() const { return std::int64_t(query + 2 * key_value) * width; }
};

// The pages of one layer's KV cache, and which of this step's rows go where.
// Page b lies at pool + b · page_bytes: keys [P, K, E], then values [P, K, E], in act type.
// Row i of sequence n has position lengths[n] − (starts[n + 1] − starts[n]) + i.
struct PagedKv {
  std::byte* pool = nullptr;
  std::size_t page_bytes = 0;
  int page_tokens = 0;                  // P
  std::span<const std::int32_t> pages;  // [N, max_pages]: ids of this layer's pages, in order
  int max_pages = 0;
  std::span<const std::int32_t> starts;   // [N + 1]: rows of each sequence in this step
  std::span<const std::int32_t> lengths;  // [N]: tokens cached once this step's rows are written
  int window = 0;
};

// One adapter's addition to one slice of a projection:
// y[rows, out_column : +N] = factor · y + shift + scale · (x[rows] Aᵀ) Bᵀ.
struct LoraPart {
  Tensor a;                    // [R, C] f32 or bf16; lora_expand does without
  Tensor b;                    // [N, R] f32 or bf16; a and b empty: factor and shift alone
  float scale = 1;             // lora_alpha / R, or / sqrt(R); applied in f32
  std::int64_t row_begin = 0;  // the rows it applies to
  std::int64_t row_end = 0;
  std::int64_t out_column = 0;  // where its N outputs lie in y (q, k, v inside qkv; gate, up inside gate_up)
  std::int64_t v_column = 0;    // where its R numbers lie in v
  Tensor factor;                // [N] f32 or empty: 1  } of forward only: DoRA, biases
  Tensor shift;                 // [N] f32 or empty: 0  }
  Tensor d_a;                   // [R, C] f32 } gradients, for training only
  Tensor d_b;                   // [N, R] f32 }
  std::uint64_t dropout_key = 0;  // tells the module apart in the random numbers
  std::int64_t rank() const { return b ? b.size(1) : 0; }
  std::int64_t outputs() const { return b ? b.size(0) : (shift ? shift : factor).size(0); }
};

// All additions to one projection. Empty: the projection is the base's alone and costs nothing more.
struct LoraTarget {
  std::span<const LoraPart> parts;
  std::int64_t v_width = 0;  // ΣR: columns of v
  explicit operator bool() const { return !parts.empty(); }
};

// Counter-based dropout: element (row, c) of x is kept iff hash(seed, key, token[row], c) says so, scaled by 1/(1−p).
struct Dropout {
  float p = 0;
  std::uint64_t seed = 0;  // of the run and step
  std::span<const std::int64_t>
      tokens;  // [T] index of each row in the step's batch, whatever the micro-batch cut
};

class Ops {
 public:
  virtual ~Ops() = default;

  // --- products --------------------------------------------------------------------------------------------
  // out[t,n] = Σ_c x[t,c] · w[n,c] + bias[n]     (logits are wanted in f32 from bf16 x)
  virtual void linear(Tensor out /*[T, N] act or f32*/, Tensor x /*[T, C] act*/, Tensor w /*[N, C]*/,
                      Tensor bias /*[N] or empty*/) = 0;
  // d_x[t,c] = Σ_n d_out[t,n] · w[n,c]     (accumulate: d_x += …)
  virtual void linear_backward_input(Tensor d_x /*[T, C] act or f32*/, Tensor d_out /*[T, N] act*/,
                                     Tensor w /*[N, C]*/, bool accumulate) = 0;
  // d_w[n,c] += Σ_t d_out[t,n] · x[t,c];  d_bias[n] += Σ_t d_out[t,n]
  virtual void linear_backward_weight(Tensor d_w /*[N, C] f32*/, Tensor d_bias /*[N] f32 or empty*/,
                                      Tensor d_out /*[T, N] act*/, Tensor x /*[T, C] act*/) = 0;

  // --- norms, positions, activations ------------------------------------------------------------------------
  // out[t,:] = x[t,:] · rstd[t] · weight,  rstd[t] = 1 / sqrt(mean(x[t,:]²) + eps)
  virtual void rms_norm(Tensor out /*[T, D] act*/, Tensor rstd /*[T] f32*/, Tensor x /*[T, D] act*/,
                        Tensor weight /*[D]*/, float eps) = 0;
  // d_x += …, d_weight += … (d_weight empty: not wanted)
  virtual void rms_norm_backward(Tensor d_x /*[T, D] act*/, Tensor d_weight /*[D] f32*/,
                                 Tensor d_out /*[T, D]*/, Tensor x /*[T, D]*/, Tensor weight /*[D]*/,
                                 Tensor rstd /*[T] f32*/) = 0;
  // x += y
  virtual void add(Tensor x /*[T, D] act*/, Tensor y /*[T, D] act*/) = 0;
  // Qwen3: every query head is RMS-normed over E with q_weight, every key head with k_weight; values are copied.
  virtual void head_norm(Tensor out /*[T, (H+2K)E] act*/, Tensor rstd /*[T, H+K] f32*/, Tensor qkv,
                         Heads heads, Tensor q_weight /*[E]*/, Tensor k_weight /*[E]*/, float eps) = 0;
  // d_qkv holds the gradient of out and becomes that of qkv (in place); d_q_weight, d_k_weight += (or both empty)
  virtual void head_norm_backward(Tensor d_qkv, Tensor d_q_weight /*[E] f32*/, Tensor d_k_weight /*[E] f32*/,
                                  Tensor qkv /*before the norm*/, Tensor rstd, Heads heads, Tensor q_weight,
                                  Tensor k_weight) = 0;
  // In place, on query and key heads: (a, b) = (x[i], x[i + E/2]) turns by angle position · inv_freq[i]:
  // a' = (a cos − b sin) · m, b' = (b cos + a sin) · m, with m the attention factor. backward: turns back.
  virtual void rope(Tensor qkv /*[T, (H+2K)E] act*/, Heads heads, Tensor positions /*[T] i32*/,
                    Tensor inv_freq /*[E/2] f32*/, float attention_factor, bool backward) = 0;
  // out = silu(gate) · up,  silu(z) = z / (1 + e^−z);  gate_up row: F gates, then F ups
  virtual void swiglu(Tensor out /*[T, F] act*/, Tensor gate_up /*[T, 2F] act*/) = 0;
  virtual void swiglu_backward(Tensor d_gate_up /*[T, 2F]*/, Tensor d_out /*[T, F]*/, Tensor gate_up) = 0;

  // --- attention ---------------------------------------------------------------------------------------------
  // Causal, within each sequence; query head h reads key-value head h / (H/K):
  // out[t,h] = Σ_s softmax_s(scale · q[t,h]·k[s])  v[s],  lse[h,t] = log Σ_s exp(scale · q·k)
  virtual void attention(Tensor out /*[T, H E] act*/, Tensor lse /*[H, T] f32*/, Tensor qkv, Heads heads,
                         const Sequences& sequences, float scale) = 0;
  virtual void attention_backward(Tensor d_qkv /*[T, (H+2K)E] act*/, Tensor d_out /*[T, H E]*/, Tensor out,
                                  Tensor lse, Tensor qkv, Heads heads, const Sequences& sequences,
                                  float scale) = 0;
  // Serving: writes this step's keys and values into their pages, then attends over the pages. A row's bits depend
  // on its own sequence alone.
  virtual void write_kv(const PagedKv& kv, Tensor qkv, Heads heads) = 0;
  virtual void paged_attention(Tensor out /*[T, H E] act*/, Tensor qkv, Heads heads, const PagedKv& kv,
                               float scale) = 0;

  // --- vocabulary --------------------------------------------------------------------------------------------
  // out[t,:] = table[ids[t],:]
  virtual void embed(Tensor out /*[T, D] act*/, Tensor table /*[V, D]*/, Tensor ids /*[T] i32*/) = 0;
  // d_table[ids[t],:] += d_out[t,:], rows of one id summed in ascending t
  virtual void embed_backward(Tensor d_table /*[V, D] f32*/, Tensor d_out /*[T, D] act*/, Tensor ids) = 0;
  // Running log-sum-exp over vocabulary tiles, in ascending tiles: for the tile's columns j,
  // m' = max(m, max_j z[t,j]), s' = s e^(m−m') + Σ_j e^(z[t,j]−m'); and the target's logit where it lies in the tile.
  // The tile that begins at 0 starts anew, whatever was there. Rows that are not trained are left alone.
  virtual void cross_entropy_tile(Tensor max_sum /*[T, 2] f32: m, s*/, Tensor target_logit /*[T] f32*/,
                                  Tensor logits /*[T, tile] f32*/,
                                  Tensor targets /*[T] i32, −1: not trained*/, std::int64_t tile_begin) = 0;
  // After the last tile: losses[t] = m + log s − target_logit, 0 where not trained.
  virtual void cross_entropy_loss(Tensor losses /*[T] f32*/, Tensor max_sum, Tensor target_logit,
                                  Tensor targets) = 0;
  // d_logits[t,j] = weight · (e^(z[t,j]−m) / s − [j is the target]), 0 where not trained. May be in place of logits
  // when the types agree.
  virtual void cross_entropy_backward(Tensor d_logits /*[T, tile] act*/, Tensor logits /*[T, tile] f32*/,
                                      Tensor max_sum, Tensor targets, std::int64_t tile_begin,
                                      float weight) = 0;

  // --- LoRA ----------------------------------------------------------------------------------------------------
  // v[rows, v_column : +R] = dropout(x)[rows] Aᵀ for every part; other places of v are left alone
  virtual void lora_shrink(Tensor v /*[T, ΣR] f32*/, Tensor x /*[T, C] act*/, const LoraTarget& lora,
                           const Dropout& dropout) = 0;
  // y[rows, out_column : +N] = factor · y + shift + scale · v Bᵀ
  virtual void lora_expand(Tensor y /*[T, N'] act*/, Tensor v, const LoraTarget& lora) = 0;
  // From d_y and the forward's x and v: d_b += scale · d_yᵀ v; d_v = scale · d_y B; d_a += d_vᵀ dropout(x);
  // d_x += dropout-mask(d_v A). d_x empty: not wanted. v holds d_v on return.
  virtual void lora_backward(Tensor d_x /*[T, C] act or empty*/, Tensor d_y /*[T, N'] act*/, Tensor x,
                             Tensor v, const LoraTarget& lora, const Dropout& dropout) = 0;

  // --- plain work on whole blocks ------------------------------------------------------------------------------
  virtual void fill_zero(Tensor x) = 0;
  // out = x in out's type, rounded once (f32 ↔ bf16)
  virtual void convert(Tensor out, Tensor x) = 0;
  // out[i] = the f32 number whose halves are hi[i] and lo[i] (tensor/dtype.h, Split)
  virtual void join(Tensor out /*[n] f32*/, Tensor hi /*[n] bf16*/, Tensor lo /*[n] i16*/) = 0;
  // out[0] = Σ x², in f64, in a fixed order that depends on the number of elements alone
  virtual void sum_of_squares(Tensor out /*[1] f64*/, Tensor x /*f32 or bf16*/) = 0;
  // One step of the optimizer over a range where the ops compute; the same bits on every backend (ops/adamw.h).
  virtual void adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) = 0;

  // The type in which products are fastest and exact enough for training here: bf16 or f32.
  virtual DType preferred_activation() const = 0;
  // What bits depend on beside shapes: tiles, orders of sums, the library and level of products. For checkpoints.
  virtual std::string numeric_plan() const = 0;
};

struct OpsOptions {
  // Serving: a row's bits never depend on the other rows (own products, fixed order over C). Training: the library's
  // products, faster for many rows.
  bool row_invariant = false;
  // Attention by a library (cuDNN) where it is there and takes the shape; else our own kernels alone.
  bool library_attention = true;
  // The most that calls will bring, for backends that keep a workspace. What is 0 is not called, or in no hurry.
  std::int64_t rows = 0;          // T
  Heads heads;                    // of attention
  std::int64_t lora_inputs = 0;   // C  } of a projection with LoRA parts
  std::int64_t lora_outputs = 0;  // N' }
  std::int64_t lora_rank = 0;     // ΣR }
};

// Ops on this device, for work on this stream, which must be one of its own (the host device: a Worker). The workspace
// is taken from the device at once, ops_workspace_bytes of it, so that a plan can count it; nothing is taken later.
// threads: what the host's ops run on.
std::unique_ptr<Ops> make_ops(Device& device, Stream& stream, Threads& threads,
                              const OpsOptions& options = {});
std::uint64_t ops_workspace_bytes(DeviceKind kind, const OpsOptions& options);  // of device memory

// Ops on host memory, whatever the device: for workers of any device.
std::unique_ptr<Ops> make_cpu_ops(Stream& stream, Threads& threads, const OpsOptions& options = {});

}  // namespace slideway
