#include "lora/lora_ends.h"

#include <algorithm>

namespace slideway {
namespace {

LoraPart part_of(const AdapterModule& module, std::int64_t rows) {
  return {.a = module.a,
          .b = module.b,
          .scale = module.scale,
          .row_begin = 0,
          .row_end = rows,
          .factor = module.factor,
          .shift = module.shift};
}

}  // namespace

void LoraEnds::begin() {
  parts_.clear();
  ids_.clear();
  numbers_.clear();
}

Tensor LoraEnds::kept_ids(std::span<const std::int32_t> ids) {
  auto& kept = ids_.emplace_back(ids.begin(), ids.end());
  return Tensor(kept.data(), DType::i32, {std::int64_t(kept.size())});
}

void LoraEnds::embed(Tensor x, std::span<const std::int32_t> ids, std::span<const AdapterRows> rows,
                     Arena& scratch) {
  for (const AdapterRows& r : rows)
    if (r.adapter && r.adapter->embedding())
      embed_rows(r.adapter->embedding(), x.rows(r.row_begin, r.row_end),
                 ids.subspan(std::size_t(r.row_begin), std::size_t(r.row_end - r.row_begin)), scratch);
}

void LoraEnds::embed_rows(const AdapterEnd& end, Tensor x, std::span<const std::int32_t> ids,
                          Arena& scratch) {
  const std::int64_t T = x.size(0);
  if (T == 0) return;
  if (end.weight) ops_.embed(x, end.weight, kept_ids(ids));
  if (end.module) {
    const Arena::Frame frame(scratch);
    const Tensor v = scratch.take("v of embedding", DType::f32, {T, end.module->rank()});
    ops_.embed(v, end.module->a, kept_ids(ids));
    LoraPart part = part_of(*end.module, T);
    part.a = {};  // v is there already
    ops_.lora_expand(x, v, {parts_.emplace_back(1, part), v.size(1)});
  }
  for (std::int64_t t = 0; end.rows && t < T; ++t) {
    const auto found = std::find(end.tokens.begin(), end.tokens.end(), ids[std::size_t(t)]);
    if (found == end.tokens.end()) continue;
    const std::int32_t row[] = {std::int32_t(found - end.tokens.begin())};
    ops_.embed(x.rows(t, t + 1), end.rows, kept_ids(row));
  }
}

void LoraEnds::head(Tensor logits, Tensor h, Tensor weight, std::span<const AdapterRows> rows,
                    Arena& scratch) {
  std::int64_t done = 0;  // rows below have their logits
  const auto multiply = [&](std::int64_t end, const Tensor& by) {
    if (done < end) ops_.linear(logits.rows(done, end), h.rows(done, end), by, {});
    done = std::max(done, end);
  };
  for (const AdapterRows& r : rows) {
    if (!r.adapter || !r.adapter->head().weight) continue;
    multiply(r.row_begin, weight);
    multiply(r.row_end, r.adapter->head().weight);
  }
  multiply(logits.size(0), weight);
  for (const AdapterRows& r : rows)
    if (r.adapter && r.row_begin < r.row_end)
      add_to_logits(r.adapter->head(), logits.rows(r.row_begin, r.row_end), h.rows(r.row_begin, r.row_end),
                    scratch);
}

void LoraEnds::add_to_logits(const AdapterEnd& end, Tensor logits, Tensor h, Arena& scratch) {
  const std::int64_t T = logits.size(0), D = h.size(1);
  if (end.module) add_parts({part_of(*end.module, T)}, logits, h, scratch);
  if (!end.rows) return;
  // A trained token's logit is another one: 0 · y + 1 · (h rowᵀ), a part of one output and rank 1.
  float* const zero = &numbers_.emplace_back(0.0f);
  float* const one = &numbers_.emplace_back(1.0f);
  std::vector<LoraPart> parts;
  for (std::size_t i = 0; i < end.tokens.size(); ++i) {
    parts.push_back({.a = end.rows.rows(std::int64_t(i), std::int64_t(i) + 1).reshaped({1, D}),
                     .b = Tensor(one, DType::f32, {1, 1}),
                     .row_begin = 0,
                     .row_end = T,
                     .out_column = end.tokens[i],
                     .v_column = std::int64_t(parts.size()),
                     .factor = Tensor(zero, DType::f32, {1})});
    if (std::int64_t(parts.size()) < max_rank_ && i + 1 < end.tokens.size()) continue;
    add_parts(std::move(parts), logits, h, scratch);
    parts.clear();
  }
}

void LoraEnds::add_parts(std::vector<LoraPart> parts, Tensor logits, Tensor h, Arena& scratch) {
  const Arena::Frame frame(scratch);
  std::int64_t width = 0;
  for (const LoraPart& part : parts) width += part.rank();
  const LoraTarget target{parts_.emplace_back(std::move(parts)), width};
  const Tensor v = scratch.take("v of head", DType::f32, {logits.size(0), width});
  ops_.lora_shrink(v, h, target, {});
  ops_.lora_expand(logits, v, target);
}

}  // namespace slideway
