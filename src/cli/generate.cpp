#include "cli/generate.h"

#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "core/log.h"
#include "serve/engine.h"
#include "text/chat.h"

namespace slideway {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 512;

// What the user chose.
struct GenerateOptions {
  std::string model, adapter, prompt, system;
  std::int64_t max_tokens = 0;  // 0: kDefaultMaxTokens, or what the context has room for
  SamplingOptions sampling{.temperature = 0};
  bool has_seed = false;
  bool raw = false, ignore_eos = false, verbose = false;
  std::string dtype = "bfloat16";
  int threads = 0;
};

std::string prompt_text(const std::string& given) {
  if (given != "-") return given;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

TokenIds prompt_ids(const GenerateOptions& options, const Tokenizer& tokenizer) {
  const auto chat = options.raw ? nullptr : ChatTemplate::load(options.model);
  const std::string prompt = prompt_text(options.prompt);
  if (!chat) {
    if (!options.system.empty())
      fail(ErrorKind::invalid_input, "--system needs a chat template, but ",
           options.raw ? "--raw does without" : options.model + " has none");
    return prompt_ids_of(prompt, tokenizer);
  }
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  // Bytes that are no UTF-8 become U+FFFD here rather than an exception.
  const std::string json = messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return tokenizer.encode(chat->render(json, {.add_generation_prompt = true}));
}

Request make_request(const GenerateOptions& options, const WeightFiles& files, const Tokenizer& tokenizer) {
  Request request{.prompt = prompt_ids(options, tokenizer), .sampling = options.sampling};
  const std::int64_t room = files.config().max_position_embeddings - std::int64_t(request.prompt.size());
  request.max_tokens =
      options.max_tokens > 0 ? options.max_tokens : std::clamp<std::int64_t>(room, 1, kDefaultMaxTokens);
  if (!options.ignore_eos) request.end_ids = end_ids_of(files.config(), tokenizer);
  if (!options.has_seed) {
    std::random_device system;
    request.sampling.seed = std::uint64_t(system()) << 32 | system();
  }
  return request;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(ErrorKind::io, "cannot write to standard output");
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Speed {
  double loading = 0, prompt = 0, answer = 0;  // seconds; the answer's from its first token on
  std::int64_t prompt_tokens = 0, answer_tokens = 0;
};

std::string speed_text(const Speed& s, const Engine& engine) {
  std::ostringstream out;
  out.precision(3);
  out << "loaded in " << s.loading << " s; prompt " << s.prompt_tokens << " tokens in " << s.prompt << " s ("
      << double(s.prompt_tokens) / s.prompt << " tokens/s); answer " << s.answer_tokens << " tokens";
  if (s.answer_tokens > 1) {
    const double rate = double(s.answer_tokens - 1) / s.answer;
    out << ", " << rate << " tokens/s, " << rate * double(engine.weight_bytes()) * 1e-9 << " GB/s of weights";
  }
  return out.str();
}

// Streams the answer to the engine's one request.
void stream_answer(Engine& engine, const Tokenizer& tokenizer, Speed& speed) {
  StreamDecoder decoder(tokenizer);
  std::string last;
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;
    print(text);
    last = text;
  };
  const Stopwatch whole;
  while (!engine.idle())
    for (const TokenEvent& event : engine.step()) {
      if (event.finish == FinishReason::error) fail(ErrorKind::internal, event.error);
      if (speed.answer_tokens++ == 0) speed.prompt = whole.seconds();
      if (event.finish != FinishReason::stop) show(decoder.push(event.token));
    }
  speed.answer = whole.seconds() - speed.prompt;
  show(decoder.finish());
  if (last.empty() || last.back() != '\n') print("\n");
}

DType weight_type(const std::string& name) {
  if (name == "bfloat16") return DType::bf16;
  if (name == "float32") return DType::f32;
  fail(ErrorKind::invalid_input, "--dtype should be bfloat16 or float32, found ", name);
}

void generate(const GenerateOptions& options) {
  const Stopwatch loading;
  validate(options.sampling);
  const DType weights = weight_type(options.dtype);
  const auto files = WeightFiles::open(options.model);
  if (!options.adapter.empty()) load_adapter_config(options.adapter);  // complains before the model is read
  const auto tokenizer = Tokenizer::load(options.model);
  Request request = make_request(options, *files, *tokenizer);

  const auto prompt = std::int64_t(request.prompt.size());
  const std::int64_t made_for = files->config().max_position_embeddings;
  const std::int64_t context = std::min(made_for, prompt + std::min(made_for, request.max_tokens));
  const auto device = make_host_device();
  Threads threads(options.threads);
  Engine engine(*device, threads, *files, {.weights = weights, .context = context});
  if (!options.adapter.empty())
    request.adapter =
        std::make_shared<const Adapter>(load_adapter(options.adapter, engine.layout(), engine.base()));
  Speed speed{.loading = loading.seconds(), .prompt_tokens = prompt};
  const std::uint64_t seed = request.sampling.seed;
  engine.add(std::move(request));
  stream_answer(engine, *tokenizer, speed);
  if (!options.verbose && !isatty(STDERR_FILENO)) return;
  log(LogLevel::info, speed_text(speed, engine));
  if (options.sampling.temperature > 0) log(LogLevel::info, "seed ", seed);
}

}  // namespace

void add_generate(CLI::App& app, int&) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Answer one prompt, as text on standard output");
  command->add_option("MODEL", o->model, "A Hugging Face folder or a .gguf file")->required();
  command->add_option("PROMPT", o->prompt, "The prompt; - reads it from standard input")->required();
  command->add_option("--adapter", o->adapter, "A PEFT adapter folder to apply");
  command->add_option("--system", o->system, "A system message before the prompt");
  command->add_flag("--raw", o->raw, "Continue the prompt as it stands, without the chat template");
  command->add_option("--max-tokens", o->max_tokens, "Tokens of the answer, at most (default: 512)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--ignore-eos", o->ignore_eos, "Go on past the model's end tokens, to --max-tokens");
  command->add_option("--temperature", o->sampling.temperature, "0: always the likeliest token (default: 0)");
  command->add_option("--top-p", o->sampling.top_p,
                      "Draw from the fewest tokens with this share (default: 1)");
  command->add_option("--top-k", o->sampling.top_k,
                      "Draw from the so many likeliest tokens (default: 0, all)");
  const auto* seed =
      command->add_option("--seed", o->sampling.seed, "Repeats what was drawn under this number");
  command->add_option("--dtype", o->dtype, "Weights as bfloat16, or exact as float32 (default: bfloat16)");
  command->add_option("--threads", o->threads, "Processors to use (default: all)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--verbose", o->verbose, "Say how fast it was, on standard error");
  command->callback([o, seed] {
    o->has_seed = seed->count() > 0;
    generate(*o);
  });
}

}  // namespace slideway
