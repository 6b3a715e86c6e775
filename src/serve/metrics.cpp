#include "serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <chrono>
#include <mutex>
#include <set>

namespace slideway {
namespace {

namespace pm = prometheus;
constexpr std::size_t kMaxAdapters = 100;

const pm::Histogram::BucketBoundaries kSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                  2.5,   5,    10,    25,   50,  100,  250};

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string joined(const std::set<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

}  // namespace

struct Metrics::Parts {
  explicit Parts(const std::string& name) : model(name) {}

  pm::Counter& counter(const char* name, const char* help, pm::Labels labels = {}) {
    labels["model_name"] = model;
    return pm::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  pm::Gauge& gauge(const char* name, const char* help, pm::Labels labels = {}) {
    labels["model_name"] = model;
    return pm::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  pm::Histogram& histogram(const char* name, const char* help) {
    return pm::BuildHistogram().Name(name).Help(help).Register(registry).Add({{"model_name", model}},
                                                                             kSeconds);
  }
  std::string adapter_label(const std::string& name) {
    if (adapters.contains(name) || adapters.size() >= kMaxAdapters)
      return adapters.contains(name) ? name : "other";
    adapters.insert(name);
    return name;
  }

  std::string model, max_adapters;
  std::mutex mutex;
  std::set<std::string> adapters;
  pm::Registry registry;
  pm::Family<pm::Gauge>* lora_info = nullptr;
  pm::Gauge* lora_now = nullptr;
};

Metrics::Metrics(const std::string& model, int block_tokens, std::int64_t blocks, std::int64_t max_adapters)
    : parts_(new Parts(model)) {
  parts_->max_adapters = std::to_string(max_adapters);
  Parts& p = *parts_;
  p.gauge("vllm:cache_config_info", "Pages of keys and values",
          {{"block_size", std::to_string(block_tokens)}, {"num_gpu_blocks", std::to_string(blocks)}})
      .Set(1);
  p.lora_info = &pm::BuildGauge()
                     .Name("vllm:lora_requests_info")
                     .Help("Adapters of running and waiting requests; the value is the time")
                     .Register(p.registry);
}

Metrics::~Metrics() = default;

void Metrics::ended(const EndedRequest& request) {
  Parts& p = *parts_;
  const std::lock_guard lock(p.mutex);
  const std::string adapter = p.adapter_label(request.model);
  p.counter("slideway_requests_total", "Requests that have ended",
            {{"model", adapter}, {"finish", request.finish}})
      .Increment();
  p.counter("slideway_answer_tokens_total", "Tokens made", {{"model", adapter}})
      .Increment(double(request.answer_tokens));
  p.counter("slideway_prompt_tokens_total", "Tokens of prompts", {{"model", adapter}})
      .Increment(double(request.prompt_tokens));
  p.counter("vllm:request_success_total", "Requests that have ended", {{"finished_reason", request.finish}})
      .Increment();
  p.counter("vllm:prompt_tokens_total", "Tokens of prompts").Increment(double(request.prompt_tokens));
  p.counter("vllm:generation_tokens_total", "Tokens made").Increment(double(request.answer_tokens));
  if (request.first_token > 0)
    p.histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token")
        .Observe(request.first_token);
  p.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end")
      .Observe(request.whole);
}

std::string Metrics::text(const EngineStatus& status) {
  Parts& p = *parts_;
  const std::lock_guard lock(p.mutex);
  const double used = status.blocks == 0 ? 0 : 1 - double(status.free_blocks) / double(status.blocks);
  p.gauge("vllm:num_requests_running", "Sequences that take part in steps").Set(double(status.running));
  p.gauge("vllm:num_requests_waiting", "Sequences that wait for room").Set(double(status.waiting));
  p.gauge("vllm:kv_cache_usage_perc", "Pages in use, as a share from 0 to 1").Set(used);
  p.gauge("vllm:gpu_cache_usage_perc", "The same under its older name").Set(used);
  p.gauge("slideway_sequences", "Sequences by what they do", {{"state", "running"}})
      .Set(double(status.running));
  p.gauge("slideway_sequences", "Sequences by what they do", {{"state", "waiting"}})
      .Set(double(status.waiting));
  p.gauge("slideway_pool_blocks", "Blocks of the pool", {{"state", "used"}})
      .Set(double(status.blocks - status.free_blocks));
  p.gauge("slideway_pool_blocks", "Blocks of the pool", {{"state", "free"}}).Set(double(status.free_blocks));
  p.gauge("slideway_pool_block_bytes", "Bytes of a block").Set(double(status.block_bytes));
  p.gauge("slideway_engine_tokens", "Tokens made since the start").Set(double(status.tokens));
  p.gauge("slideway_engine_preemptions", "Sequences that gave their pages back, since the start")
      .Set(double(status.preemptions));
  // One series at a time: its labels are what it says.
  if (p.lora_now) p.lora_info->Remove(p.lora_now);
  p.lora_now = &p.lora_info->Add({{"max_lora", p.max_adapters},
                                  {"running_lora_adapters", joined(status.running_adapters)},
                                  {"waiting_lora_adapters", joined(status.waiting_adapters)}});
  p.lora_now->Set(now_seconds());
  return pm::TextSerializer().Serialize(p.registry.Collect());
}

}  // namespace slideway
