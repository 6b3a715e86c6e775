#include "serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace slideway {
namespace {

// The first of the largest; −1 when some logit is NaN or the largest is infinite.
std::int32_t likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  bool all_numbers = true;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    all_numbers &= logits[i] == logits[i];
    if (logits[i] > logits[best]) best = i;
  }
  return all_numbers && std::isfinite(logits[best]) ? std::int32_t(best) : -1;
}

}  // namespace

void validate(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && o.temperature <= 100))
    fail(ErrorKind::invalid_input, "temperature should be between 0 and 100, found ", o.temperature);
  if (!(o.top_p > 0 && o.top_p <= 1))
    fail(ErrorKind::invalid_input, "top_p should be above 0 and at most 1, found ", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1))
    fail(ErrorKind::invalid_input, "min_p should be between 0 and 1, found ", o.min_p);
  if (!(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty)))
    fail(ErrorKind::invalid_input, "repetition_penalty should be above 0, found ", o.repetition_penalty);
  for (const float penalty : {o.presence_penalty, o.frequency_penalty})
    if (!std::isfinite(penalty))
      fail(ErrorKind::invalid_input, "penalties should be numbers, found ", penalty);
  if (o.top_k < 0) fail(ErrorKind::invalid_input, "top_k should be 0 (all) or more, found ", o.top_k);
}

std::optional<std::int32_t> Sampler::sample(std::span<const float> logits, const SamplingOptions& options,
                                            std::uint64_t choice, std::int64_t position) {
  const std::int32_t best = likeliest(logits);
  if (best < 0) return std::nullopt;
  if (options.temperature == 0) return best;

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], std::int32_t(i)});
  if (options.top_k > 0 || options.top_p < 1) keep_likeliest(options);

  weights_.clear();
  const double highest = logits[std::size_t(best)];
  for (const Candidate& c : candidates_)
    weights_.push_back(std::exp((double(c.logit) - highest) / double(options.temperature)));
  if (options.min_p > 0) keep_at_least(double(options.min_p));
  double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (options.top_p < 1) {  // candidates are sorted: keep the shortest head whose share reaches top_p
    double kept = 0;
    std::size_t n = 0;
    while (n < weights_.size() && kept < double(options.top_p) * total) kept += weights_[n++];
    weights_.resize(n);
    total = kept;
  }
  const PhiloxBlock bits = philox(options.seed, choice, std::uint64_t(position));
  double left = uniform_double(bits[0], bits[1]) * total;
  std::size_t drawn = 0;
  while (drawn + 1 < weights_.size() && left >= weights_[drawn]) left -= weights_[drawn++];
  return candidates_[drawn].id;
}

// Weights are relative to the likeliest, whose own is 1.
void Sampler::keep_at_least(double share) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] < share) continue;
    candidates_[kept] = candidates_[i];
    weights_[kept++] = weights_[i];
  }
  candidates_.resize(kept);
  weights_.resize(kept);
}

void Sampler::keep_likeliest(const SamplingOptions& options) {
  const auto more_likely = [](const Candidate& x, const Candidate& y) {
    return x.logit != y.logit ? x.logit > y.logit : x.id < y.id;
  };
  if (options.top_k > 0 && std::size_t(options.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options.top_k, candidates_.end(),
                     more_likely);
    candidates_.resize(std::size_t(options.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), more_likely);
}

}  // namespace slideway
