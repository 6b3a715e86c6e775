#include "ops/shapes.h"

#include <initializer_list>
#include <string>
#include <utility>

namespace slideway::shapes {
namespace {

using Types = std::initializer_list<DType>;
constexpr Types kFloats = {DType::f32, DType::bf16};
constexpr Types kF32 = {DType::f32};
constexpr Types kF64 = {DType::f64};
constexpr Types kI32 = {DType::i32};

std::string types_text(Types types) {
  std::string text;
  for (const DType type : types) text += (text.empty() ? "" : " or ") + std::string(name_of(type));
  return text;
}

// The checks of one call; need() states one tensor's type and shape.
class Call {
 public:
  explicit Call(const char* op) : op_(op) {}

  void need(const char* name, const Tensor& tensor, Types types,
            std::initializer_list<std::int64_t> shape) const {
    bool right = bool(tensor) && tensor.rank() == int(shape.size());
    for (int i = 0; right && i < tensor.rank(); ++i) right = tensor.size(i) == shape.begin()[i];
    if (right && has(types, tensor.dtype())) return;
    fail(ErrorKind::internal, op_, ": ", name, " is ", described(tensor), ", expected ",
         shape_text(std::span(shape.begin(), shape.size())), " ", types_text(types));
  }

  // Of the given rank, whatever its sizes: the tensor that the others are measured by.
  void need_rank(const char* name, const Tensor& tensor, Types types, int rank) const {
    if (tensor && tensor.rank() == rank && has(types, tensor.dtype())) return;
    fail(ErrorKind::internal, op_, ": ", name, " is ", described(tensor), ", expected ", rank, " axes of ",
         types_text(types));
  }

  void same_type(const char* name, const Tensor& tensor, const char* other_name, const Tensor& other) const {
    if (tensor.dtype() == other.dtype()) return;
    fail(ErrorKind::internal, op_, ": ", name, " is ", name_of(tensor.dtype()), " but ", other_name, " is ",
         name_of(other.dtype()));
  }

  template <class... Parts>
  void need_that(bool holds, const Parts&... parts) const {
    if (!holds) fail(ErrorKind::internal, op_, ": ", parts...);
  }

  void heads(const Heads& h) const {
    need_that(h.key_value > 0 && h.width > 0 && h.query > 0 && h.query % h.key_value == 0, h.query,
              " query heads, ", h.key_value, " key-value heads of width ", h.width, " do not fit together");
  }

  void starts(std::span<const std::int32_t> starts, std::int64_t rows) const {
    need_that(!starts.empty() && starts.front() == 0 && starts.back() == rows,
              "sequence starts do not run from 0 to ", rows);
    for (std::size_t n = 1; n < starts.size(); ++n) {
      need_that(starts[n - 1] <= starts[n], "sequence ", n - 1, " ends at ", starts[n], " before its start ",
                starts[n - 1]);
    }
  }

 private:
  static bool has(Types types, DType type) {
    for (const DType t : types) {
      if (t == type) return true;
    }
    return false;
  }
  static std::string described(const Tensor& tensor) {
    return tensor ? shape_text(tensor) + " " + std::string(name_of(tensor.dtype())) : "empty";
  }
  const char* op_;
};

// One part of a LoRA target against v [T, ΣR], the projection's output y [T, N'] and its input x [T, C];
// either of the two may be empty.
void lora_part(const Call& call, const LoraPart& part, const Tensor& v, const Tensor& x, const Tensor& y) {
  if (part.b) call.need_rank("b", part.b, kFloats, 2);
  call.need_that(part.b || part.factor || part.shift, "a part that adds nothing");
  const std::int64_t R = part.rank(), N = part.outputs(), T = v.size(0);
  if (x && R > 0) call.need("a", part.a, kFloats, {R, x.size(1)});
  if (part.factor) call.need("factor", part.factor, kF32, {N});
  if (part.shift) call.need("shift", part.shift, kF32, {N});
  call.need_that(0 <= part.row_begin && part.row_begin <= part.row_end && part.row_end <= T, "rows [",
                 part.row_begin, ", ", part.row_end, ") of a part pass the ", T, " rows of v");
  call.need_that(0 <= part.v_column && part.v_column + R <= v.size(1), "columns ", part.v_column, " + rank ",
                 R, " pass v, ", shape_text(v));
  if (y) {
    call.need_that(0 <= part.out_column && part.out_column + N <= y.size(1), "columns ", part.out_column,
                   " + ", N, " outputs pass y, ", shape_text(y));
  }
  if (part.d_a) call.need("d_a", part.d_a, kF32, {R, part.a.size(1)});
  if (part.d_b) call.need("d_b", part.d_b, kF32, {N, R});
}

void lora_v(const Call& call, const Tensor& v, std::int64_t rows, const LoraTarget& lora) {
  call.need("v", v, kF32, {rows, lora.v_width});
}

void dropout_tokens(const Call& call, const Dropout& dropout, std::int64_t rows) {
  call.need_that(0 <= dropout.p && dropout.p < 1, "dropout of ", dropout.p, " is not in [0, 1)");
  call.need_that(dropout.p == 0 || std::int64_t(dropout.tokens.size()) == rows,
                 "dropout knows the tokens of ", dropout.tokens.size(), " rows, x has ", rows);
}

void pages(const Call& call, const PagedKv& kv, std::int64_t rows, const Heads& heads, DType act) {
  call.starts(kv.starts, rows);
  const std::size_t N = kv.starts.size() - 1;
  call.need_that(kv.pool && kv.page_tokens > 0, "no pages of keys and values");
  call.need_that(kv.lengths.size() == N && kv.pages.size() == N * std::size_t(kv.max_pages), "page table of ",
                 kv.pages.size(), " ids and ", kv.lengths.size(), " lengths for ", N,
                 " sequences of at most ", kv.max_pages, " pages");
  const std::size_t used =
      2 * std::size_t(kv.page_tokens) * std::size_t(heads.key_value * heads.width) * bytes_of(act);
  call.need_that(used <= kv.page_bytes, "a page of ", kv.page_bytes, " bytes is smaller than its ", used,
                 " bytes of keys and values");
  for (std::size_t n = 0; n < N; ++n) {
    const std::int64_t fresh = kv.starts[n + 1] - kv.starts[n];
    call.need_that(fresh <= kv.lengths[n] && kv.lengths[n] <= std::int64_t(kv.max_pages) * kv.page_tokens,
                   "sequence ", n, " of ", kv.lengths[n], " tokens, ", fresh,
                   " of them new, does not fit its ", kv.max_pages, " pages of ", kv.page_tokens);
  }
}

}  // namespace

void linear(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Call call("linear");
  call.need_rank("x", x, kFloats, 2);
  call.need_rank("w", w, kFloats, 2);
  const std::int64_t T = x.size(0), C = x.size(1), N = w.size(0);
  call.need("w", w, kFloats, {N, C});
  call.need("out", out, kFloats, {T, N});
  if (out.dtype() != DType::f32) call.same_type("out", out, "x", x);
  if (bias) call.need("bias", bias, kFloats, {N});
}

void linear_backward_input(const Tensor& d_x, const Tensor& d_out, const Tensor& w, bool /*accumulate*/) {
  const Call call("linear_backward_input");
  call.need_rank("d_out", d_out, kFloats, 2);
  call.need_rank("w", w, kFloats, 2);
  const std::int64_t T = d_out.size(0), N = d_out.size(1), C = w.size(1);
  call.need("w", w, kFloats, {N, C});
  call.need("d_x", d_x, kFloats, {T, C});
  if (d_x.dtype() != DType::f32) call.same_type("d_x", d_x, "d_out", d_out);
}

void linear_backward_weight(const Tensor& d_w, const Tensor& d_bias, const Tensor& d_out, const Tensor& x) {
  const Call call("linear_backward_weight");
  call.need_rank("d_out", d_out, kFloats, 2);
  const std::int64_t T = d_out.size(0), N = d_out.size(1);
  call.need_rank("x", x, kFloats, 2);
  call.need("x", x, {d_out.dtype()}, {T, x.size(1)});
  call.need("d_w", d_w, kF32, {N, x.size(1)});
  if (d_bias) call.need("d_bias", d_bias, kF32, {N});
}

void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x, const Tensor& weight) {
  const Call call("rms_norm");
  call.need_rank("x", x, kFloats, 2);
  const std::int64_t T = x.size(0), D = x.size(1);
  call.need("out", out, {x.dtype()}, {T, D});
  call.need("rstd", rstd, kF32, {T});
  call.need("weight", weight, kFloats, {D});
}

void rms_norm_backward(const Tensor& d_x, const Tensor& d_weight, const Tensor& d_out, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd) {
  const Call call("rms_norm_backward");
  call.need_rank("x", x, kFloats, 2);
  const std::int64_t T = x.size(0), D = x.size(1);
  call.need("d_x", d_x, {x.dtype()}, {T, D});
  call.need("d_out", d_out, {x.dtype()}, {T, D});
  if (d_weight) call.need("d_weight", d_weight, kF32, {D});
  call.need("weight", weight, kFloats, {D});
  call.need("rstd", rstd, kF32, {T});
}

void add(const Tensor& x, const Tensor& y) {
  const Call call("add");
  call.need_rank("x", x, kFloats, 2);
  call.need("y", y, {x.dtype()}, {x.size(0), x.size(1)});
}

void head_norm(const Tensor& out, const Tensor& rstd, const Tensor& qkv, const Heads& heads,
               const Tensor& q_weight, const Tensor& k_weight) {
  const Call call("head_norm");
  call.heads(heads);
  call.need_rank("qkv", qkv, kFloats, 2);
  const std::int64_t T = qkv.size(0);
  call.need("qkv", qkv, kFloats, {T, heads.row()});
  call.need("out", out, {qkv.dtype()}, {T, heads.row()});
  call.need("rstd", rstd, kF32, {T, heads.query + heads.key_value});
  call.need("q_weight", q_weight, kFloats, {heads.width});
  call.need("k_weight", k_weight, {q_weight.dtype()}, {heads.width});
}

void head_norm_backward(const Tensor& d_qkv, const Tensor& d_q_weight, const Tensor& d_k_weight,
                        const Tensor& qkv, const Tensor& rstd, const Heads& heads, const Tensor& q_weight,
                        const Tensor& k_weight) {
  const Call call("head_norm_backward");
  call.heads(heads);
  call.need_rank("qkv", qkv, kFloats, 2);
  const std::int64_t T = qkv.size(0);
  call.need("qkv", qkv, kFloats, {T, heads.row()});
  call.need("d_qkv", d_qkv, {qkv.dtype()}, {T, heads.row()});
  if (d_q_weight) call.need("d_q_weight", d_q_weight, kF32, {heads.width});
  if (d_k_weight) call.need("d_k_weight", d_k_weight, kF32, {heads.width});
  call.need("rstd", rstd, kF32, {T, heads.query + heads.key_value});
  call.need("q_weight", q_weight, kFloats, {heads.width});
  call.need("k_weight", k_weight, {q_weight.dtype()}, {heads.width});
}

void rope(const Tensor& qkv, const Heads& heads, const Tensor& positions, const Tensor& inv_freq) {
  const Call call("rope");
  call.heads(heads);
  call.need_that(heads.width % 2 == 0, "heads of odd width ", heads.width, " have no halves to turn");
  call.need_rank("qkv", qkv, kFloats, 2);
  call.need("qkv", qkv, kFloats, {qkv.size(0), heads.row()});
  call.need("positions", positions, kI32, {qkv.size(0)});
  call.need("inv_freq", inv_freq, kF32, {heads.width / 2});
}

void swiglu(const Tensor& out, const Tensor& gate_up) {
  const Call call("swiglu");
  call.need_rank("out", out, kFloats, 2);
  call.need("gate_up", gate_up, {out.dtype()}, {out.size(0), 2 * out.size(1)});
}

void swiglu_backward(const Tensor& d_gate_up, const Tensor& d_out, const Tensor& gate_up) {
  const Call call("swiglu_backward");
  call.need_rank("d_out", d_out, kFloats, 2);
  call.need("gate_up", gate_up, {d_out.dtype()}, {d_out.size(0), 2 * d_out.size(1)});
  call.need("d_gate_up", d_gate_up, {d_out.dtype()}, {d_out.size(0), 2 * d_out.size(1)});
}

void attention(const Tensor& out, const Tensor& lse, const Tensor& qkv, const Heads& heads,
               const Sequences& sequences) {
  const Call call("attention");
  call.heads(heads);
  call.need_rank("qkv", qkv, kFloats, 2);
  const std::int64_t T = qkv.size(0);
  call.need("qkv", qkv, kFloats, {T, heads.row()});
  call.need("out", out, {qkv.dtype()}, {T, std::int64_t(heads.query) * heads.width});
  call.need("lse", lse, kF32, {heads.query, T});
  call.starts(sequences.starts, T);
  call.need_that(sequences.window >= 0, "a window of ", sequences.window);
}

void attention_backward(const Tensor& d_qkv, const Tensor& d_out, const Tensor& out, const Tensor& lse,
                        const Tensor& qkv, const Heads& heads, const Sequences& sequences) {
  attention(out, lse, qkv, heads, sequences);
  const Call call("attention_backward");
  call.need("d_qkv", d_qkv, {qkv.dtype()}, {qkv.size(0), qkv.size(1)});
  call.need("d_out", d_out, {qkv.dtype()}, {out.size(0), out.size(1)});
}

void write_kv(const PagedKv& kv, const Tensor& qkv, const Heads& heads) {
  const Call call("write_kv");
  call.heads(heads);
  call.need_rank("qkv", qkv, kFloats, 2);
  call.need("qkv", qkv, kFloats, {qkv.size(0), heads.row()});
  pages(call, kv, qkv.size(0), heads, qkv.dtype());
}

void paged_attention(const Tensor& out, const Tensor& qkv, const Heads& heads, const PagedKv& kv) {
  const Call call("paged_attention");
  call.heads(heads);
  call.need_rank("qkv", qkv, kFloats, 2);
  call.need("qkv", qkv, kFloats, {qkv.size(0), heads.row()});
  call.need("out", out, {qkv.dtype()}, {qkv.size(0), std::int64_t(heads.query) * heads.width});
  pages(call, kv, qkv.size(0), heads, qkv.dtype());
}

void embed(const Tensor& out, const Tensor& table, const Tensor& ids) {
  const Call call("embed");
  call.need_rank("table", table, kFloats, 2);
  call.need_rank("ids", ids, kI32, 1);
  call.need("out", out, kFloats, {ids.size(0), table.size(1)});
}

void embed_backward(const Tensor& d_table, const Tensor& d_out, const Tensor& ids) {
  const Call call("embed_backward");
  call.need_rank("d_table", d_table, kF32, 2);
  call.need_rank("ids", ids, kI32, 1);
  call.need("d_out", d_out, kFloats, {ids.size(0), d_table.size(1)});
}

void cross_entropy_tile(const Tensor& max_sum, const Tensor& target_logit, const Tensor& logits,
                        const Tensor& targets, std::int64_t tile_begin) {
  const Call call("cross_entropy_tile");
  call.need_rank("logits", logits, kF32, 2);
  const std::int64_t T = logits.size(0);
  call.need("max_sum", max_sum, kF32, {T, 2});
  call.need("target_logit", target_logit, kF32, {T});
  call.need("targets", targets, kI32, {T});
  call.need_that(tile_begin >= 0, "a tile that begins at ", tile_begin);
}

void cross_entropy_loss(const Tensor& losses, const Tensor& max_sum, const Tensor& target_logit,
                        const Tensor& targets) {
  const Call call("cross_entropy_loss");
  call.need_rank("losses", losses, kF32, 1);
  const std::int64_t T = losses.size(0);
  call.need("max_sum", max_sum, kF32, {T, 2});
  call.need("target_logit", target_logit, kF32, {T});
  call.need("targets", targets, kI32, {T});
}

void cross_entropy_backward(const Tensor& d_logits, const Tensor& logits, const Tensor& max_sum,
                            const Tensor& targets, std::int64_t tile_begin) {
  const Call call("cross_entropy_backward");
  call.need_rank("logits", logits, kF32, 2);
  const std::int64_t T = logits.size(0);
  call.need("d_logits", d_logits, kFloats, {T, logits.size(1)});
  call.need("max_sum", max_sum, kF32, {T, 2});
  call.need("targets", targets, kI32, {T});
  call.need_that(tile_begin >= 0, "a tile that begins at ", tile_begin);
}

void lora_shrink(const Tensor& v, const Tensor& x, const LoraTarget& lora, const Dropout& dropout) {
  const Call call("lora_shrink");
  call.need_rank("x", x, kFloats, 2);
  lora_v(call, v, x.size(0), lora);
  dropout_tokens(call, dropout, x.size(0));
  for (const LoraPart& part : lora.parts) lora_part(call, part, v, x, {});
}

void lora_expand(const Tensor& y, const Tensor& v, const LoraTarget& lora) {
  const Call call("lora_expand");
  call.need_rank("y", y, kFloats, 2);
  lora_v(call, v, y.size(0), lora);
  for (const LoraPart& part : lora.parts) lora_part(call, part, v, {}, y);
}

void lora_backward(const Tensor& d_x, const Tensor& d_y, const Tensor& x, const Tensor& v,
                   const LoraTarget& lora, const Dropout& dropout) {
  const Call call("lora_backward");
  call.need_rank("x", x, kFloats, 2);
  call.need_rank("d_y", d_y, kFloats, 2);
  const std::int64_t T = x.size(0);
  call.need("d_y", d_y, {x.dtype()}, {T, d_y.size(1)});
  if (d_x) call.need("d_x", d_x, {x.dtype()}, {T, x.size(1)});
  lora_v(call, v, T, lora);
  dropout_tokens(call, dropout, T);
  for (const LoraPart& part : lora.parts) {
    lora_part(call, part, v, x, d_y);
    call.need_that(part.d_a && part.d_b, "a part without d_a or d_b");
    call.need_that(!part.factor && !part.shift, "a part with a factor or shift, which have no backward");
  }
}

void fill_zero(const Tensor& x) {
  Call("fill_zero").need_that(bool(x), "x is empty");
}

void convert(const Tensor& out, const Tensor& x) {
  const Call call("convert");
  call.need_rank("x", x, kFloats, x.rank());
  call.need_rank("out", out, kFloats, out.rank());
  call.need_that(out.elements() == x.elements(), "out is ", shape_text(out), ", x is ", shape_text(x));
}

void join(const Tensor& out, const Tensor& hi, const Tensor& lo) {
  const Call call("join");
  call.need_rank("out", out, {DType::f32}, out.rank());
  call.need_rank("hi", hi, {DType::bf16}, hi.rank());
  call.need_rank("lo", lo, {DType::i16}, lo.rank());
  call.need_that(out.elements() == hi.elements() && hi.elements() == lo.elements(), "out is ",
                 shape_text(out), ", hi is ", shape_text(hi), ", lo is ", shape_text(lo));
}

void sum_of_squares(const Tensor& out, const Tensor& x) {
  const Call call("sum_of_squares");
  call.need_rank("x", x, kFloats, x.rank());
  call.need("out", out, kF64, {1});
}

}  // namespace slideway::shapes
