#include "serve/batch.h"

#include <algorithm>

namespace slideway {
namespace {

Tensor table(std::vector<std::int32_t>& values) {
  if (values.empty()) return {};
  return Tensor(values.data(), DType::i32, {std::int64_t(values.size())});
}

// One adapter's rows that follow each other are one range.
void extend(std::vector<AdapterRows>& ranges, const AdapterRows& next) {
  if (!ranges.empty() && ranges.back().adapter == next.adapter)
    ranges.back().row_end = next.row_end;
  else
    ranges.push_back(next);
}

}  // namespace

StepBatch::StepBatch(const ModelLayout& layout, const KvCache& cache, std::int64_t max_rows)
    : cache_(cache), lora_(layout) {
  for (auto* values : {&ids_, &positions_, &sampled_rows_, &starts_, &lengths_})
    values->reserve(std::size_t(max_rows) + 1);
}

void StepBatch::set(std::span<const BatchItem> items) {
  for (auto* values : {&ids_, &positions_, &sampled_rows_, &starts_, &lengths_}) values->clear();
  adapter_rows_.clear();
  sampled_adapters_.clear();
  starts_.push_back(0);
  for (const BatchItem& item : items) {
    const std::int64_t begin = count();
    for (std::size_t i = 0; i < item.tokens.size(); ++i)
      positions_.push_back(std::int32_t(item.position) + int(i));
    ids_.insert(ids_.end(), item.tokens.begin(), item.tokens.end());
    starts_.push_back(std::int32_t(count()));
    lengths_.push_back(std::int32_t(item.position) + std::int32_t(item.tokens.size()));
    const auto first = std::int64_t(sampled_rows_.size());
    for (std::int64_t row = item.all_rows ? begin : count() - 1; row < count(); ++row)
      if (item.sampled || item.all_rows) sampled_rows_.push_back(std::int32_t(row));
    extend(adapter_rows_, {item.adapter, begin, count()});
    extend(sampled_adapters_, {item.adapter, first, std::int64_t(sampled_rows_.size())});
  }
  lora_.set(adapter_rows_);
  set_pages(items);
}

void StepBatch::set_pages(std::span<const BatchItem> items) {
  const KvShape& shape = cache_.shape();
  max_pages_ = 0;
  const auto used = [&](std::size_t n) {
    return std::size_t((lengths_[n] + shape.page_tokens - 1) / shape.page_tokens);
  };
  for (std::size_t n = 0; n < items.size(); ++n) max_pages_ = std::max(max_pages_, used(n));
  pages_.assign(std::size_t(shape.layers) * items.size() * max_pages_, -1);
  auto to = pages_.begin();
  for (int l = 0; l < shape.layers; ++l)
    for (std::size_t n = 0; n < items.size(); ++n, to += std::ptrdiff_t(max_pages_)) {
      const auto& from = items[n].pages->of_layer[std::size_t(l)];
      CHECK(used(n) <= from.size(), "a sequence lacks pages for its next rows");
      std::copy_n(from.begin(), used(n), to);
    }
}

Tensor StepBatch::ids() {
  return table(ids_);
}

Tensor StepBatch::sampled_rows() {
  return table(sampled_rows_);
}

std::span<const AdapterRows> StepBatch::sampled_adapters(std::int64_t begin, std::int64_t end) {
  some_sampled_.clear();
  for (const AdapterRows& r : sampled_adapters_) {
    const std::int64_t first = std::max(r.row_begin, begin), last = std::min(r.row_end, end);
    if (first < last) some_sampled_.push_back({r.adapter, first - begin, last - begin});
  }
  return some_sampled_;
}

Rows StepBatch::rows(int layer) {
  const std::size_t size = lengths_.size() * max_pages_;
  kv_ = {.pool = cache_.memory(),
         .page_bytes = cache_.shape().page_bytes,
         .page_tokens = cache_.shape().page_tokens,
         .pages = std::span(pages_).subspan(std::size_t(layer) * size, size),
         .max_pages = int(max_pages_),
         .starts = starts_,
         .lengths = lengths_};
  return {.positions = table(positions_), .kv = &kv_};
}

}  // namespace slideway
