#include "serve/logit_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace slideway {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

bool LogitRules::any(const SamplingOptions& o) {
  return o.presence_penalty != 0 || o.frequency_penalty != 0 || o.repetition_penalty != 1 ||
         !o.logit_bias.empty();
}

void LogitRules::apply(std::span<float> logits, const SamplingOptions& o,
                       std::span<const std::int32_t> prompt, std::span<const std::int32_t> answer) {
  for (const auto& [id, bias] : o.logit_bias) logits[std::size_t(id)] += bias;
  in_prompt_.resize(logits.size());
  in_answer_.resize(logits.size());
  for (const std::int32_t id : prompt) ++in_prompt_[std::size_t(id)];
  for (const std::int32_t id : answer) ++in_answer_[std::size_t(id)];
  const auto penalise = [&](std::int32_t id) {
    float& z = logits[std::size_t(id)];
    std::int32_t &before = in_prompt_[std::size_t(id)], &count = in_answer_[std::size_t(id)];
    if (before == 0 && count == 0) return;  // done already
    z = z > 0 ? z / o.repetition_penalty : z * o.repetition_penalty;
    if (count > 0) z -= o.frequency_penalty * float(count) + o.presence_penalty;
    before = count = 0;
  };
  for (const std::int32_t id : prompt) penalise(id);
  for (const std::int32_t id : answer) penalise(id);
}

void LogitRules::ban(std::span<float> logits, std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) logits[std::size_t(id)] = kNever;
}

void LogitRules::keep(std::span<float> logits, std::span<const std::uint32_t> allowed) {
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (!(allowed[id / 32] >> (id % 32) & 1)) logits[id] = kNever;
}

TokenLogprobs token_logprobs(std::span<const float> logits, std::int32_t token, std::int64_t top) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float z : logits) sum += std::exp(double(z) - highest);
  const double total = highest + std::log(sum);
  const auto of = [&](std::int32_t id) {
    return TokenLogprob{id, float(double(logits[std::size_t(id)]) - total)};
  };
  TokenLogprobs out{.chosen = of(token)};
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<std::int64_t>(top, std::int64_t(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](std::int32_t x, std::int32_t y) {
    return logits[std::size_t(x)] != logits[std::size_t(y)] ? logits[std::size_t(x)] > logits[std::size_t(y)]
                                                            : x < y;
  });
  for (auto id = ids.begin(); id != end; ++id) out.top.push_back(of(*id));
  return out;
}

}  // namespace slideway
