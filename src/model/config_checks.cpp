#include "model/config_checks.h"

#include <limits>

#include "core/error.h"

namespace slideway {
namespace {

void check_range(const std::string& where, const char* name, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    fail(ErrorKind::corrupt, where, ": ", name, " is ", value, "; 1 to ", most, " is possible");
}

}  // namespace

int checked_count(const std::string& where, const char* name, std::int64_t value) {
  check_range(where, name, value, std::numeric_limits<int>::max());
  return int(value);
}

int checked_layers(const std::string& where, std::int64_t value) {
  check_range(where, "the number of layers", value, 10'000);
  return int(value);
}

void check_sizes(const std::string& where, const ModelConfig& c) {
  check_range(where, "the vocabulary", c.vocab_size, kMaxVocabulary);
  check_range(where, "the hidden size", c.hidden_size, 1 << 24);
  check_range(where, "the intermediate size", c.intermediate_size, 1 << 28);
  check_range(where, "the number of attention heads", c.num_attention_heads, 1 << 12);
  check_range(where, "the number of key-value heads", c.num_key_value_heads, 1 << 12);
  check_range(where, "the head size", c.head_dim, 1 << 12);
  check_range(where, "the context length", c.max_position_embeddings, std::numeric_limits<int>::max());
  if (c.head_dim % 2 != 0)
    fail(ErrorKind::corrupt, where, ": the head size is ", c.head_dim, ", an odd number");
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    fail(ErrorKind::corrupt, where, ": ", c.num_attention_heads, " attention heads are not a multiple of ",
         c.num_key_value_heads, " key-value heads");
  if (!(c.rms_norm_eps >= 0 && c.rms_norm_eps < 1))
    fail(ErrorKind::corrupt, where, ": rms_norm_eps is ", c.rms_norm_eps);
}

RopeConfig make_rope_of(const std::string& where, const RopeParameters& parameters, int head_dim) {
  try {
    return make_rope(parameters, head_dim);
  } catch (const Error& error) {
    fail(error.kind(), where, ": ", error.what());
  }
}

}  // namespace slideway
