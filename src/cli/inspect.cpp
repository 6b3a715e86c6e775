#include "cli/inspect.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "core/file.h"
#include "formats/safetensors.h"
#include "lora/adapter_config.h"
#include "memory/budget.h"
#include "model/weights.h"
#include "serve/kv_cache.h"
#include "serve/request.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace slideway {
namespace {

void line(const std::string& name, const std::string& text) {
  std::cout << std::left << std::setw(12) << name << text << "\n";
}

template <class... Parts>
std::string text_of_parts(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

std::string grouped(std::int64_t n) {  // 134,515,008
  std::string digits = std::to_string(n);
  for (int at = int(digits.size()) - 3; at > 0; at -= 3) digits.insert(std::size_t(at), ",");
  return digits;
}

std::string counted(const std::map<std::string, int>& counts) {
  std::string out;
  for (const auto& [name, count] : counts)
    out += (out.empty() ? "" : ", ") + name + " × " + std::to_string(count);
  return out;
}

// Every tensor that its files hold, in the order of the blocks.
std::vector<const TensorSpec*> tensors_of(const ModelLayout& layout) {
  std::vector<const TensorSpec*> out;
  for (const BlockLayout* block : layout.blocks())
    for (const TensorSpec& spec : block->tensors) out.push_back(&spec);
  return out;
}

std::string stored_types(const WeightFiles& files) {
  std::map<std::string, int> counts;
  for (const TensorSpec* spec : tensors_of(files.layout())) ++counts[files.stored_type(*spec)];
  return counted(counts);
}

std::string extras_of(const ModelConfig& c) {
  std::string out;
  if (c.qkv_bias) out += ", biases on q, k, v";
  if (c.o_bias) out += ", on o";
  if (c.mlp_bias) out += ", on the MLP";
  if (c.qk_norm) out += ", query and key heads normed";
  for (const LayerConfig& layer : c.layers)
    if (layer.sliding_window > 0) return out + ", sliding window of " + std::to_string(layer.sliding_window);
  return out;
}

std::string rope_text(const ModelConfig& c) {
  std::string out;
  for (const RopeConfig& rope : c.ropes) {
    const RopeParameters& p = rope.parameters;
    out += text_of_parts(out.empty() ? "" : "; ", p.type, ", theta ", p.theta);
    if (p.type != "default") out += text_of_parts(", factor ", p.factor);
  }
  return out;
}

void show_text(const WeightFiles& files) {
  const bool has_tokenizer = files.is_gguf() || fs::exists(files.path() / "tokenizer.json");
  if (!has_tokenizer) return line("tokenizer", "none");
  const auto tokenizer = Tokenizer::load(files.path());
  const auto named = [&](int id) { return text_of_parts(id, " ", tokenizer->token(id)); };
  std::string text = grouped(tokenizer->vocab_size()) + " tokens";
  if (tokenizer->bos_token_id() >= 0) text += ", begins with " + named(tokenizer->bos_token_id());
  std::string sep = ", ends at ";
  for (const std::int32_t id : end_ids_of(files.config(), *tokenizer)) {
    text += sep + named(id);
    sep = " or ";
  }
  line("tokenizer", text);
  const auto chat = ChatTemplate::load(files.path());
  line("template", chat ? text_of_parts(chat->source().size(), " characters",
                                        chat->marks_generation() ? ", marks what the assistant says" : "")
                        : "none");
}

void show_memory(const WeightFiles& files) {
  std::int64_t elements = 0;
  for (const BlockLayout* block : files.layout().blocks()) elements += block->elements;
  const KvShape kv = kv_shape(files.config(), DType::f32);
  const auto n = std::uint64_t(elements);
  line("to answer", text_of_parts(bytes_text(2 * n), " of BF16 weights, and ", bytes_text(kv.bytes(1024)),
                                  " of keys and values for 1,024 tokens"));
  line("to tune all", text_of_parts(bytes_text(12 * n), " of weights and moments, ", bytes_text(2 * n),
                                    " of gradients where their norm is clipped"));
}

void show_model(const std::string& path, bool tensors) {
  const auto files = WeightFiles::open(path);
  const ModelConfig& c = files->config();
  line("model", files->path().string() + (files->is_gguf() ? " (GGUF)" : " (Hugging Face folder)"));
  line("family", text_of_parts(c.family, extras_of(c)));
  line("shapes", text_of_parts(c.num_layers(), " layers, width ", c.hidden_size, ", feed-forward ",
                               c.intermediate_size, ", ", c.num_attention_heads, " heads and ",
                               c.num_key_value_heads, " key-value heads of ", c.head_dim));
  line("vocabulary",
       grouped(c.vocab_size) + (c.tie_word_embeddings ? ", head tied to the embedding" : ", own head"));
  line("parameters", grouped(files->layout().parameters()));
  line("stored as", stored_types(*files));
  line("context", grouped(c.max_position_embeddings) + " tokens");
  line("rope", rope_text(c));
  show_text(*files);
  show_memory(*files);
  if (!tensors) return;
  for (const TensorSpec* spec : tensors_of(files->layout()))
    std::cout << std::left << std::setw(6) << files->stored_type(*spec) << std::setw(16)
              << shape_text(spec->shape) << spec->name << "\n";
}

std::string choice_text(const ModuleChoice& choice) {
  switch (choice.kind) {
    case ModuleChoice::Kind::none:
      return "what has tensors";
    case ModuleChoice::Kind::all_linear:
      return "all linear layers";
    case ModuleChoice::Kind::regex:
      return "paths like " + choice.regex;
    case ModuleChoice::Kind::names:
      break;
  }
  std::string out;
  for (const std::string& name : choice.names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// What the adapter trains beside A and B.
std::string extras_text(const AdapterConfig& config) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (config.use_dora) add("DoRA");
  if (config.lora_bias) add("biases of B");
  if (config.bias != "none") add(config.bias == "all" ? "all biases" : "biases of its modules");
  for (const std::string& name : config.modules_to_save) add("its own " + name);
  for (const auto& [name, tokens] : config.trainable_token_indices)
    add(text_of_parts(tokens.size(), " tokens of ", name));
  return out;
}

void show_adapter(const std::string& path, bool tensors) {
  const AdapterConfig config = load_adapter_config(path);
  const SafetensorsFile file(fs::path(path) / "adapter_model.safetensors");
  std::map<std::string, int> types;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    ++types[entry.dtype];
    parameters += entry.elements();
    bytes += entry.bytes;
  }
  line("adapter", path + " (LoRA)");
  line("base", config.base_model_name_or_path.empty() ? "not said" : config.base_model_name_or_path);
  line("rank", text_of_parts(config.r, config.rank_pattern.empty() ? "" : " and others by module"));
  line("scale", text_of_parts("alpha ", config.lora_alpha, config.use_rslora ? " / sqrt(rank)" : " / rank",
                              config.alpha_pattern.empty() ? "" : ", other alphas by module"));
  line("modules", choice_text(config.target_modules));
  if (const std::string extras = extras_text(config); !extras.empty()) line("with", extras);
  line("parameters", grouped(parameters));
  line("stored as", text_of_parts(counted(types), ", ", bytes_text(bytes)));
  if (!tensors) return;
  for (const SafetensorsEntry& entry : file.entries())
    std::cout << std::left << std::setw(6) << entry.dtype << std::setw(16) << shape_text(entry.shape)
              << entry.name << "\n";
}

struct InspectOptions {
  std::string path;
  bool tensors = false;
};

}  // namespace

void add_inspect(CLI::App& app, int&) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Show what lies in a model or an adapter");
  command->add_option("MODEL", o->path, "A Hugging Face folder, a .gguf file, or a PEFT adapter folder")
      ->required();
  command->add_flag("--tensors", o->tensors, "List every tensor");
  command->callback([o] {
    const bool adapter = fs::exists(fs::path(o->path) / "adapter_config.json");
    adapter ? show_adapter(o->path, o->tensors) : show_model(o->path, o->tensors);
  });
}

}  // namespace slideway
