// GET /v1/models; vLLM's routes that load and unload adapters.
#include <cctype>

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/served_model.h"

namespace slideway {
namespace {

Json card_json(const ServedModel& model, const ModelNames::Card& card) {
  return {{"id", card.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "slideway"},
          {"root", card.root},
          {"parent", card.adapter ? Json(model.names->base()) : Json()},
          {"max_model_len", model.context}};
}

HttpReply text_reply(std::string text) {
  return {.type = "text/plain; charset=utf-8", .body = std::move(text)};
}

// Without its %-codes.
std::string decoded(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool code =
        path[i] == '%' && i + 2 < path.size() && std::isxdigit(path[i + 1]) && std::isxdigit(path[i + 2]);
    out += code ? char(std::stoi(path.substr(i + 1, 2), nullptr, 16)) : path[i];
    if (code) i += 2;
  }
  return out;
}

}  // namespace

HttpReply list_models(const ApiCall& call) {
  Json data = Json::array();
  for (const ModelNames::Card& card : call.model.names->cards(call.key))
    data.push_back(card_json(call.model, card));
  return {.body = dump({{"object", "list"}, {"data", std::move(data)}})};
}

HttpReply show_model(const ApiCall& call) {
  const std::string name = decoded(call.http.path.substr(std::string_view("/v1/models/").size()));
  for (const ModelNames::Card& card : call.model.names->cards(call.key))
    if (card.name == name) return {.body = dump(card_json(call.model, card))};
  fail_api({.status = 404, .param = "model", .code = "model_not_found"}, "The model `", name,
           "` does not exist.");
}

HttpReply load_adapter_route(const ApiCall& call) {
  Fields body = parse_body(call.http.body);
  const auto name = body.text("lora_name"), path = body.text("lora_path");
  const bool replace = body.flag("load_inplace").value_or(false);
  body.finish();
  if (!name || !path || name->empty() || path->empty())
    fail_api({.type = "InvalidUserInput"}, "Both 'lora_name' and 'lora_path' must be provided.");
  call.model.names->load(*name, *path, replace);
  return text_reply("Success: LoRA adapter '" + *name + "' added successfully.");
}

HttpReply unload_adapter_route(const ApiCall& call) {
  Fields body = parse_body(call.http.body);
  const auto name = body.text("lora_name");
  body.ignore({"lora_int_id"});
  body.finish();
  if (!name || name->empty())
    fail_api({.type = "InvalidUserInput"}, "'lora_name' needs to be provided to unload a LoRA adapter.");
  call.model.names->unload(*name);
  return text_reply("Success: LoRA adapter '" + *name + "' removed successfully.");
}

}  // namespace slideway
