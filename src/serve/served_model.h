// ServedModel: a model that answers: its engine, tokenizer and template, and the names it and its adapters go by.
//
// Threads  the API's, any; names have their own lock
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/access.h"
#include "serve/engine_thread.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/model_names.h"
#include "serve/tool_calls.h"
#include "text/chat.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace slideway {

struct ServedModelOptions {
  bool special_text = false;        // text of prompts and messages that spells a control token becomes it
  bool request_template = false;    // a request may bring its own chat template
  std::int64_t max_waiting = 8192;  // sequences; beyond, requests are refused with 429
  ToolCallForm tool_calls = ToolCallForm::none;  // how the model writes them
};

struct ServedModel {
  ServedModelOptions options;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat;  // null: none
  std::unique_ptr<GrammarCompiler> grammars;
  std::vector<std::int32_t> end_ids;
  SamplingOptions sampling;  // what a request leaves open
  std::int64_t context = 0, vocab_size = 0;
  std::unique_ptr<ModelNames> names;
  std::unique_ptr<Metrics> metrics;
  EngineThread* engine = nullptr;
  std::int64_t created = 0;  // seconds since 1970
};

// A request as its route sees it.
struct ApiCall {
  const HttpRequest& http;
  const AccessKey* key;  // null: there are no keys
  ServedModel& model;
};

HttpReply complete(const ApiCall& call);
HttpReply chat(const ApiCall& call);
HttpReply list_models(const ApiCall& call);
HttpReply show_model(const ApiCall& call);
HttpReply tokenize(const ApiCall& call);
HttpReply detokenize(const ApiCall& call);
HttpReply show_metrics(const ApiCall& call);
HttpReply show_status(const ApiCall& call);
HttpReply load_adapter_route(const ApiCall& call);
HttpReply unload_adapter_route(const ApiCall& call);

}  // namespace slideway
