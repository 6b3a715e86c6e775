#include "ops/cpu/lora.h"

#include <algorithm>
#include <type_traits>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dropout.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/matrix_view.h"
#include "ops/cpu/scratch.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr std::int64_t kRows = 64, kColumns = 64;  // of a tile; dropout draws for 64 columns at once
constexpr std::int64_t kRanks = 32;                // of a piece of shrink

struct Range {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};
Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
Range at(std::int64_t index, std::int64_t size) {
  return {index * size, index * size + size};
}
Range rows_of(const LoraPart& part) {
  return {part.row_begin, part.row_end};
}

std::int64_t up_to_columns(std::int64_t n) {
  return pieces_of(n, kColumns) * kColumns;
}

// A call's work: what it needs of the machine.
class Work {
 public:
  Work(Threads& threads, CpuLevel level) : threads_(threads), level_(kernels(level)) {}
  const Kernels& level() const { return level_; }

  // A few microseconds of work are not worth waking a thread.
  template <class Piece>
  void for_each(std::int64_t pieces, std::int64_t multiplications, const Piece& piece) {
    constexpr std::int64_t kWorthAThread = 1 << 17;
    if (multiplications >= kWorthAThread) return threads_.for_each(pieces, piece);
    for (std::int64_t i = 0; i < pieces; ++i) piece(i);
  }

  // out [m, n] = a · b (+ out): chains over ascending k.
  void product(float* out, std::int64_t out_stride, const MatrixView& a, const MatrixView& b,
               bool accumulate) const {
    float* const scratch = scratch_floats(ScratchSlot::lora_product, std::size_t(dense_scratch(a.rows)));
    level_.dense({out, out_stride, a, b, accumulate, scratch});
  }

  // to[row, c] = dropout's factors of rows and columns [columns.begin, …): up_to_columns(count) of them a row.
  void factors(float* to, const DropoutMask& mask, const Dropout& dropout, Range rows, Range columns) const {
    const std::int64_t width = up_to_columns(columns.count());
    level_.dropout_factors({to, width, dropout.tokens.data() + rows.begin, rows.count(), columns.begin, width,
                            mask.key, mask.threshold, mask.scale});
  }

 private:
  Threads& threads_;
  const Kernels& level_;
};

MatrixView block(const Tensor& x, Range rows, Range columns) {
  return part(matrix(x), rows.begin, rows.count(), columns.begin, columns.count());
}
Patch patch(const MatrixView& x) {
  return {x.data, x.type, x.rows, x.columns, x.stride};
}
// The columns of v, d_y that belong to a part.
Range v_columns(const LoraPart& part) {
  return {part.v_column, part.v_column + part.rank()};
}
Range out_columns(const LoraPart& part) {
  return {part.out_column, part.out_column + part.outputs()};
}

std::int64_t multiplications(const LoraTarget& lora, bool of_a) {
  std::int64_t sum = 0;
  for (const LoraPart& part : lora.parts) sum += rows_of(part).count() * (of_a ? part.a : part.b).elements();
  return sum;
}

// v[rows, of ranks] = dropout(x)[rows] · A[ranks]ᵀ
void shrink_tile(const Work& work, Tensor v, Tensor x, const LoraPart& part, const Dropout& dropout,
                 Range rows, Range ranks) {
  const std::int64_t inputs = x.size(1);
  const DropoutMask mask(dropout, part.dropout_key);
  const MatrixView from = block(x, rows, {0, inputs}), to = block(v, rows, v_columns(part));
  RowProducts products{.x = from.data,
                       .x_type = from.type,
                       .x_stride = from.stride,
                       .w = part.a.data(),
                       .w_type = part.a.dtype(),
                       .out = to.data,
                       .out_type = to.type,
                       .out_stride = to.stride,
                       .rows = rows.count(),
                       .inputs = inputs};
  if (mask.active()) {
    const std::int64_t width = up_to_columns(inputs);
    float* const dropped = scratch_floats(ScratchSlot::lora, std::size_t(rows.count() * width));
    work.factors(dropped, mask, dropout, rows, {0, inputs});
    work.level().scale_patch(patch(from), dropped, width);
    products.x = dropped;
    products.x_type = DType::f32;
    products.x_stride = width;
  }
  work.level().row_products(products, ranks.begin, ranks.end);
}

// y = factor · y + shift + scale · sums, rounded once
template <class Number>
void scale_and_add(const MatrixView& y, const float* sums, const LoraPart& part, std::int64_t output) {
  for (std::int64_t t = 0; t < y.rows; ++t) {
    Number* const row = static_cast<Number*>(y.data) + t * y.stride;
    for (std::int64_t c = 0; c < y.columns; ++c) {
      float value;
      if constexpr (std::is_same_v<Number, float>)
        value = row[c];
      else
        value = to_float(row[c]);
      if (part.factor) value *= part.factor.f32()[output + c];
      if (part.shift) value += part.shift.f32()[output + c];
      if (sums) value += part.scale * sums[t * kColumns + c];
      if constexpr (std::is_same_v<Number, float>)
        row[c] = value;
      else
        row[c] = to_bf16(value);
    }
  }
}

// y[rows, columns] = factor · y + shift + scale · v Bᵀ, for the columns that belong to the part
void expand_tile(const Work& work, Tensor y, Tensor v, const LoraPart& part, Range rows, Range columns) {
  alignas(64) float sums[kRows * kColumns];
  const Range outputs = {columns.begin - part.out_column, columns.end - part.out_column};
  const MatrixView to = block(y, rows, columns);
  if (part.b)
    work.product(sums, kColumns, block(v, rows, v_columns(part)),
                 turned(block(part.b, outputs, {0, part.rank()})), false);
  if (!part.factor && !part.shift)
    return work.level().add_patch(patch(to), sums, nullptr, kColumns, part.scale);
  const float* const added = part.b ? sums : nullptr;
  if (to.type == DType::f32)
    scale_and_add<float>(to, added, part, outputs.begin);
  else
    scale_and_add<bf16_t>(to, added, part, outputs.begin);
}

// d_b[outputs] += scale · d_y[rows, outputs]ᵀ v[rows]
void add_to_d_b(const Work& work, Tensor d_y, Tensor v, const LoraPart& part, Range columns) {
  const std::int64_t rank = part.b.size(1);
  float* const sums = scratch_floats(ScratchSlot::lora, std::size_t(kColumns * rank));
  work.product(sums, rank, turned(block(d_y, rows_of(part), columns)),
               block(v, rows_of(part), v_columns(part)), false);
  const Range outputs = {columns.begin - part.out_column, columns.end - part.out_column};
  work.level().add_patch(patch(block(part.d_b, outputs, {0, rank})), sums, nullptr, rank, part.scale);
}

// v[rows] = scale · d_y[rows] B
void d_v_of(const Work& work, Tensor v, Tensor d_y, const LoraPart& part, Range rows) {
  const MatrixView d_v = block(v, rows, v_columns(part));
  auto* const numbers = static_cast<float*>(d_v.data);
  work.product(numbers, d_v.stride, block(d_y, rows, out_columns(part)), matrix(part.b), false);
  for (std::int64_t t = 0; t < d_v.rows; ++t) {
    for (std::int64_t r = 0; r < d_v.columns; ++r) numbers[t * d_v.stride + r] *= part.scale;
  }
}

// For 64 columns of x, row tile by row tile: d_a += d_vᵀ dropout(x), and d_x += dropout(Σ_parts d_v A).
class ColumnsBackward {
 public:
  ColumnsBackward(const Work& work, Tensor d_x, Tensor x, Tensor d_v, const LoraTarget& lora,
                  const Dropout& dropout, Range columns)
      : work_(work), d_x_(d_x), x_(x), d_v_(d_v), lora_(lora), dropout_(dropout), columns_(columns) {}

  void run() {
    for (std::int64_t t = 0; t < x_.size(0); t += kRows) tile({t, std::min(t + kRows, x_.size(0))});
  }

 private:
  void tile(Range all) {
    std::fill_n(sums_, kRows * kColumns, 0.f);
    bool touched[kRows] = {};
    for (const LoraPart& part : lora_.parts) {
      const Range rows = common(rows_of(part), all);
      if (rows.count() <= 0) continue;
      const DropoutMask mask(dropout_, part.dropout_key);
      if (mask.active()) work_.factors(factors_, mask, dropout_, rows, columns_);
      if (d_x_) add_d_x(part, rows, all.begin, mask.active());
      add_to_d_a(part, rows, mask.active());
      std::fill(touched + (rows.begin - all.begin), touched + (rows.end - all.begin), true);
    }
    for (std::int64_t t = 0; d_x_ && t < all.count(); ++t) {
      const Range row = {all.begin + t, all.begin + t + 1};
      if (!touched[t]) continue;
      work_.level().add_patch(patch(block(d_x_, row, columns_)), sums_ + t * kColumns, nullptr, kColumns, 1);
    }
  }

  void add_d_x(const LoraPart& part, Range rows, std::int64_t first_row, bool drops) {
    float* const to = sums_ + (rows.begin - first_row) * kColumns;
    const MatrixView d_v = block(d_v_, rows, v_columns(part)),
                     a = block(part.a, {0, part.a.size(0)}, columns_);
    if (!drops) return work_.product(to, kColumns, d_v, a, true);
    work_.product(product_, kColumns, d_v, a, false);
    work_.level().add_patch({to, DType::f32, rows.count(), columns_.count(), kColumns}, product_, factors_,
                            kColumns, 1);
  }

  void add_to_d_a(const LoraPart& part, Range rows, bool drops) {
    MatrixView x = block(x_, rows, columns_);
    if (drops) {
      work_.level().scale_patch(patch(x), factors_, kColumns);
      x = {factors_, DType::f32, rows.count(), columns_.count(), kColumns};
    }
    const MatrixView d_a = block(part.d_a, {0, part.d_a.size(0)}, columns_);
    work_.product(static_cast<float*>(d_a.data), d_a.stride, turned(block(d_v_, rows, v_columns(part))), x,
                  true);
  }

  const Work& work_;
  Tensor d_x_, x_, d_v_;
  const LoraTarget& lora_;
  const Dropout& dropout_;
  Range columns_;
  alignas(64) float sums_[kRows * kColumns], product_[kRows * kColumns], factors_[kRows * kColumns];
};

}  // namespace

void lora_shrink(Threads& threads, Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout,
                 CpuLevel level) {
  Work work(threads, level);
  std::int64_t most_ranks = 0;
  for (const LoraPart& part : lora.parts) most_ranks = std::max(most_ranks, part.rank());
  const std::int64_t blocks = pieces_of(most_ranks, kRanks);
  work.for_each(pieces_of(x.size(0), kRows) * blocks, multiplications(lora, true), [&](std::int64_t piece) {
    const Range tile = at(piece / blocks, kRows), some_ranks = at(piece % blocks, kRanks);
    for (const LoraPart& part : lora.parts) {
      const Range rows = common(rows_of(part), tile), ranks = common({0, part.rank()}, some_ranks);
      if (rows.count() > 0 && ranks.count() > 0) shrink_tile(work, v, x, part, dropout, rows, ranks);
    }
  });
}

void lora_expand(Threads& threads, Tensor y, Tensor v, const LoraTarget& lora, CpuLevel level) {
  Work work(threads, level);
  const std::int64_t blocks = pieces_of(y.size(1), kColumns);
  work.for_each(pieces_of(y.size(0), kRows) * blocks, multiplications(lora, false), [&](std::int64_t piece) {
    const Range tile = at(piece / blocks, kRows), strip = at(piece % blocks, kColumns);
    for (const LoraPart& part : lora.parts) {
      const Range rows = common(rows_of(part), tile), columns = common(out_columns(part), strip);
      if (rows.count() > 0 && columns.count() > 0) expand_tile(work, y, v, part, rows, columns);
    }
  });
}

void lora_backward(Threads& threads, Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                   const Dropout& dropout, CpuLevel level) {
  Work work(threads, level);
  work.for_each(pieces_of(d_y.size(1), kColumns), multiplications(lora, false), [&](std::int64_t piece) {
    for (const LoraPart& part : lora.parts) {
      const Range columns = common(out_columns(part), at(piece, kColumns));
      if (columns.count() > 0) add_to_d_b(work, d_y, v, part, columns);
    }
  });
  work.for_each(pieces_of(x.size(0), kRows), multiplications(lora, false), [&](std::int64_t piece) {
    for (const LoraPart& part : lora.parts) {
      const Range rows = common(rows_of(part), at(piece, kRows));
      if (rows.count() > 0) d_v_of(work, v, d_y, part, rows);
    }
  });
  work.for_each(pieces_of(x.size(1), kColumns), 2 * multiplications(lora, true), [&](std::int64_t piece) {
    const Range columns = common(at(piece, kColumns), {0, x.size(1)});
    ColumnsBackward(work, d_x, x, v, lora, dropout, columns).run();
  });
}

void CpuOps::lora_shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout) {
  shapes::lora_shrink(v, x, lora, dropout);
  stream_.run([=, this] { slideway::lora_shrink(threads_, v, x, lora, dropout); });
}

void CpuOps::lora_expand(Tensor y, Tensor v, const LoraTarget& lora) {
  shapes::lora_expand(y, v, lora);
  stream_.run([=, this] { slideway::lora_expand(threads_, y, v, lora); });
}

void CpuOps::lora_backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                           const Dropout& dropout) {
  shapes::lora_backward(d_x, d_y, x, v, lora, dropout);
  stream_.run([=, this] { slideway::lora_backward(threads_, d_x, d_y, x, v, lora, dropout); });
}

}  // namespace slideway
