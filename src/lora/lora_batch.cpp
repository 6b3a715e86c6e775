#include "lora/lora_batch.h"

namespace slideway {
namespace {

// The columns of a fused projection before the slice of this role.
std::int64_t out_column(const BlockLayout& layer, Role role) {
  const auto outputs = [&](Role of) { return layer.find(of)->shape[0]; };
  switch (role) {
    case Role::k_proj:
      return outputs(Role::q_proj);
    case Role::v_proj:
      return outputs(Role::q_proj) + outputs(Role::k_proj);
    case Role::up_proj:
      return outputs(Role::gate_proj);
    default:
      return 0;
  }
}

}  // namespace

void LayerParts::clear() {
  for (Target* target : {&qkv_, &o_, &gate_up_, &down_}) {
    target->parts.clear();
    target->v_width = 0;
  }
}

void LayerParts::add(const BlockLayout& layer, Role role, LoraPart part) {
  CHECK(is_lora_role(role));
  Target& target = role == Role::o_proj                               ? o_
                   : role == Role::down_proj                          ? down_
                   : role == Role::gate_proj || role == Role::up_proj ? gate_up_
                                                                      : qkv_;
  part.out_column = out_column(layer, role);
  part.v_column = 0;
  if (!target.parts.empty()) {
    const LoraPart& last = target.parts.back();
    const bool same_rows = last.row_begin == part.row_begin && last.row_end == part.row_end;
    if (same_rows) part.v_column = last.v_column + last.rank();
  }
  target.v_width = std::max({target.v_width, part.v_column + part.rank(), std::int64_t(1)});
  target.parts.push_back(part);
}

bool LayerParts::empty() const {
  return qkv_.parts.empty() && o_.parts.empty() && gate_up_.parts.empty() && down_.parts.empty();
}

LayerLora LayerParts::lora(const Dropout& dropout) const {
  return {qkv_.view(), o_.view(), gate_up_.view(), down_.view(), dropout};
}

LoraBatch::LoraBatch(const ModelLayout& layout)
    : layout_(layout), parts_(layout.layers.size()), loras_(layout.layers.size()) {}

void LoraBatch::set(std::span<const AdapterRows> rows) {
  for (std::size_t l = 0; l < parts_.size(); ++l) {
    parts_[l].clear();
    for (const AdapterRows& range : rows) {
      if (!range.adapter || range.row_begin == range.row_end) continue;
      for (const AdapterModule& module : range.adapter->modules_of(int(l)))
        parts_[l].add(layout_.layers[l], module.role,
                      {.a = module.a,
                       .b = module.b,
                       .scale = module.scale,
                       .row_begin = range.row_begin,
                       .row_end = range.row_end,
                       .factor = module.factor,
                       .shift = module.shift});
    }
    loras_[l] = parts_[l].lora();
  }
}

const LayerLora* LoraBatch::layer(int layer) const {
  const auto l = std::size_t(layer);
  return parts_[l].empty() ? nullptr : &loras_[l];
}

}  // namespace slideway
