#include "model/layer.h"

#include <algorithm>
#include <initializer_list>

namespace slideway {
namespace {

// The tensors of these roles as one, [Σ rows, …]: the layout has put them one after another. Empty if there
// are none.
Tensor fused(const BlockLayout& layout, std::initializer_list<Role> roles, void* block, DType type) {
  const TensorSpec* first = layout.find(*roles.begin());
  if (!first) return {};
  std::vector<std::int64_t> shape = first->shape;
  std::int64_t end = first->offset;
  shape[0] = 0;
  for (const Role role : roles) {
    const TensorSpec* spec = layout.find(role);
    CHECK(spec && spec->offset == end, layout.name, ": a gap among what is fused with ", first->name);
    shape[0] += spec->shape[0];
    end += spec->elements();
  }
  return Tensor(view(*first, block, type).data(), type, shape);
}

std::int64_t qkv_width(const ModelConfig& config) {
  return std::int64_t(config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim;
}

std::int64_t attention_width(const ModelConfig& config) {
  return std::int64_t(config.num_attention_heads) * config.head_dim;
}

// Elements [begin, begin + n·m) of a flat piece as [n, m].
Tensor carve(Tensor flat, std::int64_t begin, std::int64_t n, std::int64_t m) {
  return flat.rows(begin, begin + n * m).reshaped({n, m});
}

template <class Block>
std::size_t bytes_of_block(const ModelConfig& config, std::int64_t rows, DType act) {
  Arena arena = Arena::measuring();
  Block(arena, config, rows, act);
  return arena.high_water();
}

}  // namespace

LayerWeights layer_weights(const BlockLayout& layout, void* block, DType type) {
  const auto one = [&](Role role) { return fused(layout, {role}, block, type); };
  return {.input_norm = one(Role::input_norm),
          .qkv = fused(layout, {Role::q_proj, Role::k_proj, Role::v_proj}, block, type),
          .qkv_bias = fused(layout, {Role::q_bias, Role::k_bias, Role::v_bias}, block, type),
          .q_norm = one(Role::q_norm),
          .k_norm = one(Role::k_norm),
          .o = one(Role::o_proj),
          .o_bias = one(Role::o_bias),
          .post_attention_norm = one(Role::post_attention_norm),
          .gate_up = fused(layout, {Role::gate_proj, Role::up_proj}, block, type),
          .gate_up_bias = fused(layout, {Role::gate_bias, Role::up_bias}, block, type),
          .down = one(Role::down_proj),
          .down_bias = one(Role::down_bias)};
}

LayerSaved take_saved(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act,
                      const LayerLora* lora, Tensor x) {
  const std::int64_t D = config.hidden_size, F = config.intermediate_size;
  const auto take_v = [&](const char* what, LoraTarget LayerLora::* target) {
    return lora && lora->*target ? arena.take(what, DType::f32, {rows, (lora->*target).v_width}) : Tensor();
  };
  LayerSaved saved;
  saved.x = x ? x : arena.take("x", act, {rows, D});
  saved.qkv = arena.take("qkv", act, {rows, qkv_width(config)});
  saved.attention = arena.take("attention", act, {rows, attention_width(config)});
  saved.lse = arena.take("lse", DType::f32, {config.num_attention_heads, rows});
  saved.x_mid = arena.take("x_mid", act, {rows, D});
  saved.gate_up = arena.take("gate_up", act, {rows, 2 * F});
  saved.v_qkv = take_v("v of qkv", &LayerLora::qkv);
  saved.v_o = take_v("v of o", &LayerLora::o);
  saved.v_gate_up = take_v("v of gate_up", &LayerLora::gate_up);
  saved.v_down = take_v("v of down", &LayerLora::down);
  return saved;
}

std::size_t forward_scratch_bytes(const ModelConfig& config, std::int64_t rows, DType act) {
  return std::max(bytes_of_block<AttentionForward>(config, rows, act),
                  bytes_of_block<MlpForward>(config, rows, act));
}

std::size_t backward_scratch_bytes(const ModelConfig& config, std::int64_t rows, DType act) {
  return std::max(bytes_of_block<AttentionBackward>(config, rows, act),
                  bytes_of_block<MlpBackward>(config, rows, act));
}

HeadNormed::HeadNormed(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act) {
  if (!config.qk_norm) return;
  qkv = arena.take("normed qkv", act, {rows, qkv_width(config)});
  rstd = arena.take("head_rstd", DType::f32, {rows, config.num_attention_heads + config.num_key_value_heads});
}

AttentionForward::AttentionForward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act)
    : h(arena.take("h", act, {rows, config.hidden_size})),
      rstd(arena.take("rstd", DType::f32, {rows})),
      head(arena, config, rows, act) {}

MlpForward::MlpForward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act) {
  const std::int64_t D = config.hidden_size, F = config.intermediate_size;
  const Tensor flat = arena.take("h, swiglu", act, {rows * std::max(D, F)});
  h = carve(flat, 0, rows, D);
  swiglu = carve(flat, 0, rows, F);
  rstd = arena.take("rstd", DType::f32, {rows});
}

MlpBackward::MlpBackward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act) {
  const std::int64_t D = config.hidden_size, F = config.intermediate_size;
  const Tensor wide = arena.take("swiglu, d_gate_up", act, {rows * 2 * F});
  swiglu = carve(wide, 0, rows, F);
  d_gate_up = carve(wide, 0, rows, 2 * F);
  const Tensor flat = arena.take("d_swiglu, h, d_h", act, {rows * std::max(F, 2 * D)});
  d_swiglu = carve(flat, 0, rows, F);
  h = carve(flat, 0, rows, D);
  d_h = carve(flat, rows * D, rows, D);
  rstd = arena.take("rstd", DType::f32, {rows});
}

AttentionBackward::AttentionBackward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act)
    : d_qkv(arena.take("d_qkv", act, {rows, qkv_width(config)})),
      rstd(arena.take("rstd", DType::f32, {rows})),
      head(arena, config, rows, act) {
  const std::int64_t D = config.hidden_size;
  const Tensor flat =
      arena.take("d_attention, h, d_h", act, {rows * std::max(attention_width(config), 2 * D)});
  d_attention = carve(flat, 0, rows, attention_width(config));
  h = carve(flat, 0, rows, D);
  d_h = carve(flat, rows * D, rows, D);
}

}  // namespace slideway
