#include "cli/serve.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "serve/answer_fields.h"
#include "serve/api.h"
#include "serve/http_server.h"
#include "serve/notify.h"

namespace slideway {
namespace {

constexpr std::uint64_t kDefaultKvBytes = std::uint64_t(4) << 30;
constexpr auto kRescan = std::chrono::seconds(2);

// What the user chose.
struct ServeOptions {
  std::string model, adapters, dtype = "bfloat16", generation_config = "auto", chat_template, tool_calls;
  std::vector<std::string> names, keys;
  std::string key_file, admin_key;
  std::int64_t max_sequences = 16, max_batched_tokens = 256;
  std::int64_t context = 0, max_lora_rank = 512;
  std::uint64_t kv_bytes = 0;
  int threads = 0;
  bool no_access_log = false;
  ServedModelOptions text;
  HttpOptions http;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Access access_of(const ServeOptions& options) {
  Access access;
  const auto from_environment = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  for (const std::string& key : options.keys) access.add_key(key, {});
  if (const std::string key = from_environment("SLIDEWAY_API_KEY"); options.keys.empty() && !key.empty())
    access.add_key(key, {});
  const std::string admin =
      options.admin_key.empty() ? from_environment("SLIDEWAY_ADMIN_API_KEY") : options.admin_key;
  if (!admin.empty()) access.add_key(admin, {.admin = true});
  if (!options.key_file.empty()) access.add_file(options.key_file);
  return access;
}

DType weight_type(const std::string& name) {
  if (name == "bfloat16" || name == "auto") return DType::bf16;
  if (name == "float32") return DType::f32;
  fail(ErrorKind::invalid_input, "--dtype should be bfloat16 or float32, found ", name);
}

// A model and all it needs to answer. Members end in the opposite order.
struct Serving {
  explicit Serving(const ServeOptions& options) : threads(options.threads) {
    const auto files = WeightFiles::open(options.model);
    const KvShape kv = kv_shape(files->config(), DType::f32);
    const std::int64_t context =
        options.context > 0 ? options.context : files->config().max_position_embeddings;
    const std::uint64_t most = kv.bytes(context) * std::uint64_t(options.max_sequences);
    engine = std::make_unique<Engine>(
        *device, threads, *files,
        EngineOptions{.weights = weight_type(options.dtype),
                      .context = options.context,
                      .max_sequences = options.max_sequences,
                      .chunk = options.max_batched_tokens,
                      .kv_bytes = options.kv_bytes > 0 ? options.kv_bytes : std::min(most, kDefaultKvBytes),
                      .max_lora_rank = options.max_lora_rank});
    read_model(options);
    model.metrics = std::make_unique<Metrics>(options.names.front(), kv.page_tokens,
                                              engine->cache().pool().size(), options.max_sequences);
    thread = std::make_unique<EngineThread>(*engine);
    model.engine = thread.get();
    watcher = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }

  void read_model(const ServeOptions& options) {
    model.options = options.text;
    model.tokenizer = Tokenizer::load(options.model);
    model.chat = ChatTemplate::load(options.model);
    if (!options.chat_template.empty()) {
      const std::string source = read_text(options.chat_template);
      model.chat =
          model.chat ? model.chat->with_source(source) : std::make_unique<ChatTemplate>(source, "", "");
    }
    model.end_ids = end_ids_of(engine->config(), *model.tokenizer);
    if (options.generation_config == "auto") model.sampling = generation_defaults(options.model);
    model.context = engine->context();
    model.vocab_size = engine->config().vocab_size;
    model.grammars = std::make_unique<GrammarCompiler>(*model.tokenizer, model.vocab_size, model.end_ids);
    model.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    model.names = std::make_unique<ModelNames>(options.names, options.model, engine->layout(), engine->base(),
                                               *model.tokenizer, model.chat.get(), options.adapters);
  }

  // Looks at the folder of adapters every now and then.
  void watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, stop, kRescan, [] { return false; }) && !stop.stop_requested())
      model.names->rescan();
  }

  std::unique_ptr<Device> device = make_host_device();
  Threads threads;
  std::unique_ptr<Engine> engine;
  ServedModel model;
  std::unique_ptr<EngineThread> thread;
  std::jthread watcher;
};

// Signals that end the server come to one thread, which nothing keeps from hearing them.
sigset_t take_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

void end_on_signal(sigset_t signals, const std::atomic<bool>& serving, Api& api, HttpServer& server) {
  std::thread([signals, &serving, &api, &server] {
    int signal = 0;
    sigwait(&signals, &signal);
    if (!serving) _exit(0);  // still loading: there is nothing to end
    notify_service("STOPPING=1");
    log(LogLevel::info, "ending: requests under way go on, new ones are refused; again to end at once");
    api.drain();
    server.drain();
    sigwait(&signals, &signal);
    _exit(130);
  }).detach();
}

int serve(const ServeOptions& options) {
  const sigset_t signals = take_signals();
  static std::atomic<bool> serving{false};
  std::unique_ptr<Serving> model;
  Api api(access_of(options), is_loopback(options.http.host));
  HttpServer server(options.http, api.handlers());
  end_on_signal(signals, serving, api, server);
  server.start();
  log(LogLevel::info, "loading ", options.model);
  model = std::make_unique<Serving>(options);
  api.begin(model->model);
  serving = true;
  const std::string scheme = options.http.certificate_file.empty() ? "http://" : "https://";
  log(LogLevel::info, "serving ", options.names.front(), " on ", scheme, options.http.host, ":",
      server.port());
  notify_service("READY=1");
  server.wait();
  log(LogLevel::info, "ended");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* c = app.add_subcommand("serve", "Serve a model and its adapters: an OpenAI-compatible API");
  c->add_option("MODEL", o->model, "A Hugging Face folder or a .gguf file")->required();
  c->add_option("--adapters", o->adapters,
                "A folder of PEFT adapters, each served under its folder's name; watched");
  c->add_option("--served-model-name", o->names,
                "What the base model is called (default: MODEL); several are aliases");
  c->add_option("--host", o->http.host, "Address to listen on (default: 127.0.0.1, this machine alone)");
  c->add_option("--port", o->http.port, "Port to listen on; 0: any (default: 8000)");
  c->add_option("--max-model-len", o->context,
                "Tokens a request may come to (default: what the model was made for)");
  c->add_option("--max-num-seqs", o->max_sequences, "Sequences running side by side (default: 16)")
      ->check(CLI::PositiveNumber);
  c->add_option("--max-num-batched-tokens", o->max_batched_tokens,
                "Tokens of prompts in one step (default: 256)")
      ->check(CLI::PositiveNumber);
  c->add_option("--kv-cache-memory-bytes", o->kv_bytes,
                "Memory for keys and values (default: for all sequences, at most 4 GiB)")
      ->transform(CLI::AsSizeValue(false));
  c->add_option("--max-waiting", o->text.max_waiting,
                "Sequences that may wait; beyond, requests get 429 (default: 8192)")
      ->check(CLI::PositiveNumber);
  c->add_option("--max-lora-rank", o->max_lora_rank, "The largest rank of an adapter (default: 512)")
      ->check(CLI::Range(1, 512));
  c->add_option("--dtype", o->dtype, "Weights as bfloat16, or exact as float32 (default: bfloat16)");
  c->add_option("--threads", o->threads, "Processors to use (default: all)")->check(CLI::NonNegativeNumber);
  c->add_option("--api-key", o->keys,
                "A key that requests must carry; better: SLIDEWAY_API_KEY or --api-key-file");
  c->add_option("--api-key-file", o->key_file, "Keys, and what each may use: see docs/serving.md")
      ->check(CLI::ExistingFile);
  c->add_option("--admin-api-key", o->admin_key,
                "The key that may load and unload; better: SLIDEWAY_ADMIN_API_KEY");
  c->add_option("--ssl-certfile", o->http.certificate_file, "Serve HTTPS with this certificate (PEM)");
  c->add_option("--ssl-keyfile", o->http.key_file, "… and this key");
  c->add_option("--max-connections", o->http.max_connections, "Connections at a time (default: 8192)");
  c->add_option("--max-body-bytes", o->http.max_body_bytes, "Bytes of a request's body (default: 32 MiB)")
      ->transform(CLI::AsSizeValue(false));
  c->add_option("--max-header-bytes", o->http.max_header_bytes,
                "Bytes of a request's header (default: 32 KiB)")
      ->transform(CLI::AsSizeValue(false));
  c->add_option("--read-timeout", o->http.read_timeout,
                "Seconds for a header, and again for a body (default: 30)");
  c->add_option("--write-timeout", o->http.write_timeout,
                "Seconds that a reader may take nothing (default: 30)");
  c->add_option("--timeout-keep-alive", o->http.idle_timeout,
                "Seconds a connection may lie idle (default: 75)");
  c->add_option("--drain-timeout", o->http.drain_timeout,
                "Seconds that requests may still take after SIGTERM (default: 30)");
  c->add_flag("--disable-access-log", o->no_access_log, "No line for each request");
  c->add_option("--generation-config", o->generation_config,
                "auto: sampling defaults from the model's generation_config.json; vllm: none")
      ->check(CLI::IsMember({"auto", "vllm"}));
  c->add_option("--chat-template", o->chat_template, "A file with a chat template, in place of the model's")
      ->check(CLI::ExistingFile);
  c->add_flag("--trust-request-chat-template", o->text.request_template,
              "Requests may bring a chat_template");
  c->add_flag("--allow-special-tokens", o->text.special_text,
              "Text of prompts and messages that spells a control token becomes it");
  c->add_option("--tool-call-parser", o->tool_calls, "How the model writes tool calls: hermes or llama3_json")
      ->check(CLI::IsMember({"hermes", "llama3_json"}));
  c->callback([o, &exit_code] {
    o->text.tool_calls = tool_call_form(o->tool_calls).value_or(ToolCallForm::none);
    if (o->names.empty()) o->names = {o->model};
    o->http.access_log = !o->no_access_log;
    exit_code = serve(*o);
  });
}

}  // namespace slideway
