#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "train/dataset.h"

namespace slideway {

BatchSampler::BatchSampler(const Dataset& data, const TrainOptions& options)
    : data_(data),
      seed_(options.seed),
      micro_batch_size_(options.micro_batch_size),
      units_a_step_(std::int64_t(options.micro_batch_size) * options.gradient_accumulation_steps) {
  if (options.sample_packing) {
    pack(options.sequence_len);
  } else {
    members_.resize(std::size_t(data.size()));
    std::iota(members_.begin(), members_.end(), std::int64_t(0));
    ends_.resize(members_.size());
    std::iota(ends_.begin(), ends_.end(), std::int64_t(1));
  }
  shuffle();
}

// Best fit, longest first: each sample goes into the fullest pack that still has room.
void BatchSampler::pack(int sequence_len) {
  std::vector<std::int64_t> longest_first(std::size_t(data_.size()));
  std::iota(longest_first.begin(), longest_first.end(), std::int64_t(0));
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](std::int64_t a, std::int64_t b) { return data_.length(a) > data_.length(b); });
  std::vector<std::vector<std::int64_t>> packs;
  std::multimap<std::int64_t, std::size_t> by_room;
  for (const std::int64_t sample : longest_first) {
    const auto fit = by_room.lower_bound(data_.length(sample));
    std::size_t index = packs.size();
    std::int64_t room = sequence_len;
    if (fit != by_room.end()) {
      std::tie(room, index) = *fit;
      by_room.erase(fit);
    } else {
      packs.emplace_back();
    }
    packs[index].push_back(sample);
    by_room.emplace(room - data_.length(sample), index);
  }
  for (const auto& samples : packs) {
    members_.insert(members_.end(), samples.begin(), samples.end());
    ends_.push_back(std::int64_t(members_.size()));
  }
}

// Fisher and Yates, with numbers that are a function of (seed, epoch, place).
void BatchSampler::shuffle() {
  order_.resize(ends_.size());
  std::iota(order_.begin(), order_.end(), std::int64_t(0));
  for (std::size_t i = order_.size(); i > 1; --i) {
    const PhiloxBlock bits = philox(seed_, std::uint64_t(position_.epoch), i);
    const std::uint64_t word = std::uint64_t(bits[0]) << 32 | bits[1];
    std::swap(order_[i - 1], order_[std::size_t(word % i)]);
  }
}

StepBatch BatchSampler::next() {
  StepBatch batch;
  const auto units = std::int64_t(order_.size());
  const std::int64_t end = std::min(position_.unit + units_a_step_, units);
  for (std::int64_t first = position_.unit; first < end; first += micro_batch_size_)
    batch.micro_batches.push_back(micro_batch(first, std::min(micro_batch_size_, end - first), batch.tokens));
  for (const MicroBatch& micro : batch.micro_batches)
    batch.trained_tokens +=
        std::count_if(micro.targets.begin(), micro.targets.end(), [](auto id) { return id >= 0; });
  position_.unit = end;
  if (end == units) seek({position_.epoch + 1, 0});
  return batch;
}

MicroBatch BatchSampler::micro_batch(std::int64_t first, std::int64_t count, std::int64_t& tokens) const {
  MicroBatch micro;
  micro.starts.push_back(0);
  for (std::int64_t u = first; u < first + count; ++u) {
    const std::int64_t unit = order_[std::size_t(u)];
    for (std::int64_t m = unit == 0 ? 0 : ends_[std::size_t(unit - 1)]; m < ends_[std::size_t(unit)]; ++m) {
      const std::int64_t sample = members_[std::size_t(m)], length = data_.length(sample);
      for (std::int64_t t = 0; t < length; ++t) {
        micro.ids.push_back(data_.id(sample, t));
        micro.targets.push_back(t + 1 < length && data_.trained(sample, t + 1) ? data_.id(sample, t + 1)
                                                                               : -1);
        micro.positions.push_back(std::int32_t(t));
        micro.tokens.push_back(tokens++);
      }
      micro.starts.push_back(std::int32_t(micro.ids.size()));
    }
  }
  return micro;
}

void BatchSampler::seek(DataPosition position) {
  const bool other_epoch = position.epoch != position_.epoch;
  position_ = position;
  if (other_epoch) shuffle();
}

std::int64_t BatchSampler::steps_per_epoch() const {
  return (std::int64_t(ends_.size()) + units_a_step_ - 1) / units_a_step_;
}

std::int64_t BatchSampler::max_micro_batch_tokens() const {
  std::vector<std::int64_t> lengths;
  for (std::size_t unit = 0; unit < ends_.size(); ++unit) {
    std::int64_t sum = 0;
    for (std::int64_t m = unit == 0 ? 0 : ends_[unit - 1]; m < ends_[unit]; ++m)
      sum += data_.length(members_[std::size_t(m)]);
    lengths.push_back(sum);
  }
  const auto most = std::min<std::size_t>(std::size_t(micro_batch_size_), lengths.size());
  std::partial_sort(lengths.begin(), lengths.begin() + std::ptrdiff_t(most), lengths.end(), std::greater<>());
  return std::accumulate(lengths.begin(), lengths.begin() + std::ptrdiff_t(most), std::int64_t(0));
}

}  // namespace slideway
