// Sampler: one token from one row of logits.
//
// A pure function of its arguments: the random number is that of (seed, choice, position), so what a request draws does
// not depend on what else runs, or when.
//
// Threads  one at a time (it keeps room for sorting)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "serve/request.h"

namespace slideway {

// Errors: invalid_input, naming the option and its range.
void validate(const SamplingOptions& options);

class Sampler {
 public:
  // position: of the token to be drawn. Nothing when the logits are not all numbers.
  std::optional<std::int32_t> sample(std::span<const float> logits /*[V]*/, const SamplingOptions& options,
                                     std::uint64_t choice, std::int64_t position);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  void keep_likeliest(const SamplingOptions& options);
  void keep_at_least(double share);
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace slideway
