// Metrics: what a Prometheus server reads from /metrics: our own names, and those of vLLM's by which the Kubernetes
// Gateway API Inference Extension routes.
//
// Labels are bounded: the first hundred adapters asked for have their own, the rest are "other".
//
// Units    seconds, tokens, bytes
// Threads  any
// Source   prometheus-cpp; the inference extension's model server protocol
#pragma once

#include <memory>
#include <string>

#include "serve/engine_thread.h"

namespace slideway {

// One request of the API that has ended.
struct EndedRequest {
  std::string model;
  std::string finish;  // "stop", "length", "error", "cancelled"
  std::int64_t prompt_tokens = 0, answer_tokens = 0;
  double first_token = 0;  // seconds from its arrival; 0: none came
  double whole = 0;        // seconds
};

class Metrics {
 public:
  // model: the base's name; block_tokens: of one page of keys and values; max_adapters: in one step.
  Metrics(const std::string& model, int block_tokens, std::int64_t blocks, std::int64_t max_adapters);
  ~Metrics();

  void ended(const EndedRequest& request);
  // In Prometheus' text format.
  std::string text(const EngineStatus& status);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace slideway
