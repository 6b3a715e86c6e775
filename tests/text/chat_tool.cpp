// Renders templates for tests/python/test_chat.py: one JSON object a line in, one a line out.
//
// in   {"template", "variables": {…}}                       the template alone, over any variables
//      {"template" | "model", "messages": […], "tools", "extra", "bos", "eos", "add_generation_prompt", "turns",
//       "ids": true for token ids, by the tokenizer of "tokenizer" or "model"}  a chat
//      "now": seconds since 1970, in both
// out  {"text", "pieces": [[text, literal, trained], …], "ids", "trained"} or {"error", "kind"}
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "text/chat.h"
#include "text/jinja.h"

using Json = nlohmann::ordered_json;

namespace slideway {
namespace {

Json run_template(const Json& job) {
  const JinjaTemplate jinja(job["template"].get<std::string>());
  JinjaHeap heap;
  JinjaTemplate::Variables variables;
  if (job.contains("variables"))
    for (const auto& [name, value] : job["variables"].items())
      variables.emplace_back(name, value_from_json(heap, value.dump(), Origin::kGiven));
  const std::time_t now = job.value("now", std::int64_t(0));
  const TracedText text = jinja.render(heap, variables, {}, [now] { return now; });
  return {{"text", text.bytes()}};
}

Json run_chat(const Json& job) {
  const std::unique_ptr<ChatTemplate> chat =
      job.contains("model")
          ? ChatTemplate::load(job["model"].get<std::string>())
          : std::make_unique<ChatTemplate>(job["template"].get<std::string>(),
                                           job.value("bos", std::string()), job.value("eos", std::string()));
  ChatOptions options;
  options.add_generation_prompt = job.value("add_generation_prompt", false);
  if (job.contains("tools")) options.tools_json = job["tools"].dump();
  if (job.contains("extra")) options.extra_json = job["extra"].dump();
  options.now = job.value("now", std::int64_t(0));
  const std::string messages = job["messages"].dump();
  const auto pieces =
      job.value("turns", false) ? chat->render_turns(messages, options) : chat->render(messages, options);
  Json out = {{"text", text_of(pieces)}, {"pieces", Json::array()}};
  for (const TextPiece& piece : pieces) out["pieces"].push_back({piece.text, piece.literal, piece.trained});
  if (job.value("ids", false)) {
    static std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
    std::unique_ptr<Tokenizer>& tokenizer =
        tokenizers[job.value("tokenizer", job.value("model", std::string()))];
    if (!tokenizer) tokenizer = Tokenizer::load(job.value("tokenizer", job.value("model", std::string())));
    std::vector<bool> trained;
    out["ids"] = tokenizer->encode(pieces, &trained);
    out["trained"] = trained;
  }
  return out;
}

Json answer(const std::string& line) {
  try {
    const Json job = Json::parse(line);
    return job.contains("messages") ? run_chat(job) : run_template(job);
  } catch (const Error& error) {
    return {{"error", error.what()}, {"kind", int(error.kind())}};
  }
}

}  // namespace
}  // namespace slideway

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << slideway::answer(line).dump() << std::endl;
}
