#include "serve/answer_fields.h"

#include <filesystem>
#include <limits>
#include <random>

#include "serve/api_error.h"

namespace slideway {
namespace {

constexpr std::int64_t kAnyInteger = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kAnyId = std::numeric_limits<std::int32_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMostRepetition = 100;
constexpr std::size_t kMaxStops = 32;

template <class Number, class Given>
void set(Number& number, const std::optional<Given>& given) {
  if (given) number = Number(*given);
}

std::uint64_t random_seed() {
  thread_local std::random_device system;
  return std::uint64_t(system()) << 32 | system();
}

// 0 and −1 both say "all" somewhere.
std::optional<std::int64_t> read_top_k(Fields& fields) {
  const auto k = fields.integer("top_k", -1, kAnyId);
  return k == -1 ? 0 : k;
}

void read_sampling(Fields& fields, SamplingOptions& s) {
  set(s.temperature, fields.number("temperature", 0, 100));
  set(s.top_p, fields.number("top_p", 0, 1));
  if (s.top_p == 0) fail_field("top_p", "top_p should be more than 0");
  set(s.top_k, read_top_k(fields));
  set(s.min_p, fields.number("min_p", 0, 1));
  set(s.presence_penalty, fields.number("presence_penalty", -2, 2));
  set(s.frequency_penalty, fields.number("frequency_penalty", -2, 2));
  set(s.repetition_penalty, fields.number("repetition_penalty", 0, kMostRepetition));
  if (s.repetition_penalty == 0) fail_field("repetition_penalty", "repetition_penalty should be more than 0");
  s.seed = std::uint64_t(fields.integer("seed", std::numeric_limits<std::int64_t>::min(), kAnyInteger)
                             .value_or(std::int64_t(random_seed())));
}

void read_logit_bias(Fields& fields, SamplingOptions& s) {
  const Json* given = fields.find("logit_bias");
  if (!given) return;
  if (!given->is_object())
    fail_field("logit_bias", "logit_bias should be an object of token ids, found ", shown(*given));
  for (const auto& [name, bias] : given->items()) {
    std::size_t end = 0;
    long long id = -1;
    try {
      id = std::stoll(name, &end);
    } catch (const std::exception&) {
    }
    if (end != name.size() || name.empty() || id < 0 || id > kAnyId)
      fail_field("logit_bias", "logit_bias: ", shown(name), " is not a token id");
    const double value = bias.is_number() ? bias.get<double>() : kInfinity;
    if (!(value >= -100 && value <= 100))
      fail_field("logit_bias", "logit_bias: the bias of ", name,
                 " should be a number from -100 to 100, found ", shown(bias));
    s.logit_bias.emplace_back(std::int32_t(id), float(value));
  }
}

std::vector<std::string> read_stops(Fields& fields) {
  const Json* given = fields.find("stop");
  if (!given) return {};
  const Json list = given->is_array() ? *given : Json::array({*given});
  if (list.size() > kMaxStops)
    fail_field("stop", "stop should have at most ", kMaxStops, " strings, found ", list.size());
  std::vector<std::string> stops;
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty())
      fail_field("stop", "stop should be a string or a list of strings, none of them empty, found ",
                 shown(stop));
    stops.push_back(stop);
  }
  return stops;
}

void read_stream(Fields& fields, AnswerFields& out) {
  out.stream = fields.flag("stream").value_or(false);
  const Json* given = fields.find("stream_options");
  if (!given) return;
  if (!out.stream) fail_field("stream_options", "stream_options may only be given where stream is true");
  Fields options(*given, "stream_options");
  out.include_usage = options.flag("include_usage").value_or(false);
  options.accept("include_obfuscation", {false});
  options.accept("continuous_usage_stats", {false});
  options.finish();
}

// What others know and this server does not do, but for the one value that asks for nothing.
void read_unsupported(Fields& fields) {
  fields.ignore(
      {"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "request_id"});
  fields.accept("service_tier", {"auto", "default"});
  fields.accept("store", {false});
  fields.accept("best_of", {1});
  fields.accept("use_beam_search", {false});
  fields.accept("length_penalty", {1, 1.0});
  fields.accept("priority", {0});
  fields.accept("spaces_between_special_tokens", {true});
  for (const char* name :
       {"prompt_logprobs", "truncate_prompt_tokens", "allowed_token_ids", "bad_words", "logits_processors",
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "cache_salt",
        "kv_transfer_params", "vllm_xargs", "thinking_token_budget"})
    fields.accept(name, {});
}

}  // namespace

AnswerFields read_answer_fields(Fields& fields, const SamplingOptions& defaults) {
  AnswerFields out;
  out.model = fields.text("model").value_or("");
  out.sampling = defaults;
  read_sampling(fields, out.sampling);
  read_logit_bias(fields, out.sampling);
  out.n = fields.integer("n", 1, kMaxChoices).value_or(1);
  out.text.stops = read_stops(fields);
  out.text.include_stop = fields.flag("include_stop_str_in_output").value_or(false);
  out.text.skip_special_tokens = fields.flag("skip_special_tokens").value_or(true);
  out.text.min_tokens = fields.integer("min_tokens", 0, kAnyInteger).value_or(0);
  out.stop_token_ids = fields.ids("stop_token_ids");
  out.ignore_eos = fields.flag("ignore_eos").value_or(false);
  read_stream(fields, out);
  read_unsupported(fields);
  return out;
}

SamplingOptions generation_defaults(const std::string& model) {
  SamplingOptions out;
  const std::filesystem::path file = std::filesystem::path(model) / "generation_config.json";
  if (!std::filesystem::exists(file)) return out;
  try {
    Fields fields(load_json(file));
    set(out.temperature, fields.number("temperature", 0, 100));
    set(out.top_p, fields.number("top_p", 0, 1));
    set(out.top_k, read_top_k(fields));
    set(out.min_p, fields.number("min_p", 0, 1));
    set(out.repetition_penalty, fields.number("repetition_penalty", 0, kMostRepetition));
  } catch (const ApiError& error) {
    fail(ErrorKind::corrupt, file.string(), ": ", error.what());
  }
  return out;
}

}  // namespace slideway
