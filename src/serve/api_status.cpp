// GET /metrics for machines, GET /status for the status page.
#include <algorithm>

#include "serve/fields.h"
#include "serve/served_model.h"

namespace slideway {
namespace {

Json adapter_json(const ModelNames::Card& card) {
  return {{"name", card.name},
          {"tier", card.loaded ? "memory" : "disk"},
          {"rank", card.loaded ? Json(card.loaded->max_rank()) : Json()},
          {"bytes", card.loaded ? Json(card.loaded->bytes()) : Json()},
          {"requests", card.requests}};
}

}  // namespace

HttpReply show_metrics(const ApiCall& call) {
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = call.model.metrics->text(call.model.engine->status())};
}

HttpReply show_status(const ApiCall& call) {
  const ServedModel& model = call.model;
  const EngineStatus status = model.engine->status();
  Json adapters = Json::array();
  Json base;
  for (const ModelNames::Card& card : model.names->cards(call.key)) {
    if (card.adapter)
      adapters.push_back(adapter_json(card));
    else if (base.is_null())
      base = {{"name", card.name}, {"requests", card.requests}};
  }
  const std::int64_t used = status.blocks - status.free_blocks;
  return {.body = dump({{"version", SLIDEWAY_VERSION},
                        {"base", base},
                        {"context", model.context},
                        {"running", status.running},
                        {"waiting", status.waiting},
                        {"tokens", status.tokens},
                        {"pool",
                         {{"block_bytes", status.block_bytes},
                          {"blocks", status.blocks},
                          {"used", {{"keys and values", used}}}}},
                        {"adapters", std::move(adapters)}})};
}

}  // namespace slideway
