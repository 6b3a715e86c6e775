// Bounds on a model's sizes, whatever file they come from, so that no product of them can overflow and no absurd
// number reaches an allocation.
//
// Errors   corrupt: where, which size, its value
#pragma once

#include <cstdint>
#include <string>

#include "model/config.h"

namespace slideway {

constexpr std::int64_t kMaxVocabulary = 1 << 28;

int checked_count(const std::string& where, const char* name, std::int64_t value);  // 1 … 2³¹−1
int checked_layers(const std::string& where, std::int64_t value);                   // 1 … 10,000
// Everything but the layers.
void check_sizes(const std::string& where, const ModelConfig& config);
// make_rope, with where in its errors.
RopeConfig make_rope_of(const std::string& where, const RopeParameters& parameters, int head_dim);

}  // namespace slideway
