#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace slideway {
namespace {

// theta^(2i/E), in the float steps of the reference.
std::vector<float> position_frequencies(double theta, int head_dim) {
  std::vector<float> powers(std::size_t(head_dim / 2));
  for (int i = 0; i < head_dim / 2; ++i)
    powers[std::size_t(i)] = float(std::pow(double(float(theta)), double(float(2 * i) / float(head_dim))));
  return powers;
}

// Three bands by wavelength: short ones stay, long ones are divided by the factor, between them a ramp.
void scale_llama3(const RopeParameters& p, std::vector<float>& inv_freq) {
  const auto context = float(p.original_max_position_embeddings);
  const auto factor = float(p.factor), low = float(p.low_freq_factor), high = float(p.high_freq_factor);
  const auto longest_kept = float(p.original_max_position_embeddings / p.high_freq_factor);
  const auto shortest_scaled = float(p.original_max_position_embeddings / p.low_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = float(2 * std::numbers::pi) / f;
    if (wavelength > shortest_scaled) {
      f /= factor;
    } else if (!(wavelength < longest_kept)) {
      const float smooth = (context / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

// The dimension at which a wave turns this many times within the original context.
double turning_dimension(const RopeParameters& p, double turns, int head_dim) {
  return head_dim * std::log(p.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(p.theta));
}

// Fast dimensions keep their frequency, slow ones are interpolated, between them a ramp over dimensions.
void scale_yarn(const RopeParameters& p, int head_dim, std::vector<float>& inv_freq) {
  double low = turning_dimension(p, p.beta_fast, head_dim),
         high = turning_dimension(p, p.beta_slow, head_dim);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, double(head_dim - 1));
  if (low == high) high += 0.001;
  const std::vector<float> powers = position_frequencies(p.theta, head_dim);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp = std::clamp((float(i) - float(low)) / float(high - low), 0.0f, 1.0f);
    const float keep = 1 - ramp;
    const float interpolated = 1 / (float(p.factor) * powers[i]);
    inv_freq[i] = interpolated * (1 - keep) + inv_freq[i] * keep;
  }
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeParameters& p) {
  if (p.attention_factor) return *p.attention_factor;
  if (p.mscale.value_or(0) != 0 && p.mscale_all_dim.value_or(0) != 0)
    return yarn_scale(p.factor, *p.mscale) / yarn_scale(p.factor, *p.mscale_all_dim);
  return yarn_scale(p.factor, 1);
}

void check(const RopeParameters& p) {
  const auto positive = [](const char* name, double value) {
    if (!std::isfinite(value) || value <= 0)
      fail(ErrorKind::corrupt, "rope: ", name, " is ", value, "; it must be a number above 0");
  };
  if (p.type != "default" && p.type != "linear" && p.type != "llama3" && p.type != "yarn")
    fail(ErrorKind::unsupported, "rope: the type ", p.type, " is not one of default, linear, llama3, yarn");
  positive("rope_theta", p.theta);
  if (p.type == "default") return;
  positive("factor", p.factor);
  if (p.type == "linear") return;
  positive("original_max_position_embeddings", p.original_max_position_embeddings);
  if (p.type == "llama3") {
    positive("low_freq_factor", p.low_freq_factor);
    positive("high_freq_factor", p.high_freq_factor);
    if (p.high_freq_factor <= p.low_freq_factor)
      fail(ErrorKind::corrupt, "rope: high_freq_factor ", p.high_freq_factor,
           " is not above low_freq_factor ", p.low_freq_factor);
  } else {
    positive("beta_fast", p.beta_fast);
    positive("beta_slow", p.beta_slow);
    if (p.theta == 1) fail(ErrorKind::corrupt, "rope: yarn needs a rope_theta other than 1");
    if (p.attention_factor) positive("attention_factor", *p.attention_factor);
  }
}

}  // namespace

RopeConfig make_rope(const RopeParameters& parameters, int head_dim) {
  check(parameters);
  RopeConfig rope{.parameters = parameters};
  rope.inv_freq = position_frequencies(parameters.theta, head_dim);
  for (float& f : rope.inv_freq) f = 1 / f;
  if (parameters.type == "linear")
    for (float& f : rope.inv_freq) f /= float(parameters.factor);
  if (parameters.type == "llama3") scale_llama3(parameters, rope.inv_freq);
  if (parameters.type == "yarn") {
    scale_yarn(parameters, head_dim, rope.inv_freq);
    rope.attention_factor = float(yarn_attention_factor(parameters));
  }
  return rope;
}

}  // namespace slideway
