// The rope fields of a config.json, in the old spelling (rope_theta, rope_scaling) and the new one (rope_parameters).
//
// Errors   corrupt, unsupported: file, field, value
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "model/config_fields.h"
#include "model/rope.h"

namespace slideway {

// By layer type ("full_attention", "sliding_attention"), or one entry "" for every layer.
std::map<std::string, RopeParameters> read_ropes(const Fields& config, std::int64_t max_position_embeddings);

}  // namespace slideway
