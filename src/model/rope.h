// Rope tables: how positions turn into angles, for every spelling of scaling that the families use.
//
// A table equals the one transformers makes, step by step in float, so that angles at far positions agree.
//
// Errors   unsupported (a type or a parameter), corrupt (a value outside what the formula allows)
// Source   transformers' ROPE_INIT_FUNCTIONS; YaRN, arXiv 2309.00071; Llama 3.1's three bands
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace slideway {

// What the tables are made from, as a config states it. Fields of other types than `type` are unused.
struct RopeParameters {
  std::string type = "default";  // "default", "linear", "llama3", "yarn"
  double theta = 10000;
  double factor = 1;                                               // linear, llama3, yarn
  double original_max_position_embeddings = 0;                     // llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;                // llama3
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // yarn
  double beta_fast = 32, beta_slow = 1;                            // yarn
  bool truncate = true;                                            // yarn
  bool operator==(const RopeParameters&) const = default;
};

// One per kind of layer.
struct RopeConfig {
  std::vector<float> inv_freq;    // [E/2], all scaling applied
  float attention_factor = 1.0f;  // yarn's factor on cos and sin
  RopeParameters parameters;
};

RopeConfig make_rope(const RopeParameters& parameters, int head_dim);

}  // namespace slideway
