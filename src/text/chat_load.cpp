// Where a chat template and the special tokens it names are found: model folders and GGUF metadata.
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "text/chat.h"

namespace slideway {
namespace {

struct Found {
  std::optional<std::string> plain;
  std::string with_tools;
  ChatTemplate::SpecialTokens tokens;
};

// "…_token": a text, or an object that holds it.
void add_tokens(Found& found, const Json& config) {
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    const Json content = value.is_object() ? value.value("content", Json()) : value;
    if (content.is_string()) found.tokens[name] = content.get<std::string>();
  }
}

// A template's text, or a list of named ones.
void add_template(Found& found, const Json& field, const std::string& where) {
  if (field.is_string()) {
    found.plain = field.get<std::string>();
    return;
  }
  if (!field.is_array())
    fail(ErrorKind::corrupt, where, ": chat_template must be a text or a list of templates");
  for (const Json& named : field) {
    if (!named.is_object() || !named.value("name", Json()).is_string() ||
        !named.value("template", Json()).is_string())
      fail(ErrorKind::corrupt, where, ": chat_template: each template of a list needs a name and a template");
    if (named["name"] == "default") found.plain = named["template"].get<std::string>();
    if (named["name"] == "tool_use") found.with_tools = named["template"].get<std::string>();
  }
  if (!found.plain && !found.with_tools.empty()) found.plain = found.with_tools;
}

Found in_folder(const fs::path& folder) {
  Found found;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json", "chat_template.json"}) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    const Json config = load_json(path);
    if (!config.is_object()) fail(ErrorKind::corrupt, path.string(), ": expected an object");
    add_tokens(found, config);
    if (const auto field = config.find("chat_template"); field != config.end() && !field->is_null())
      add_template(found, *field, path.string());
  }
  if (fs::exists(folder / "chat_template.jinja")) found.plain = read_text(folder / "chat_template.jinja");
  const fs::path tools = folder / "additional_chat_templates" / "tool_use.jinja";
  if (fs::exists(tools)) found.with_tools = read_text(tools);
  return found;
}

Found in_gguf(const GgufFile& gguf) {
  Found found;
  if (gguf.find("tokenizer.chat_template")) found.plain = gguf.text("tokenizer.chat_template");
  if (gguf.find("tokenizer.chat_template.tool_use"))
    found.with_tools = gguf.text("tokenizer.chat_template.tool_use");
  const GgufValue* tokens = gguf.find("tokenizer.ggml.tokens");
  const auto* texts = tokens ? std::get_if<std::vector<std::string>>(tokens) : nullptr;
  static constexpr std::pair<const char*, const char*> kTokens[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token"},
      {"tokenizer.ggml.eos_token_id", "eos_token"},
      {"tokenizer.ggml.unknown_token_id", "unk_token"},
      {"tokenizer.ggml.padding_token_id", "pad_token"}};
  for (const auto& [key, name] : kTokens) {
    if (!texts || !gguf.find(key)) continue;
    const std::int64_t id = gguf.integer(key);
    if (id >= 0 && id < std::int64_t(texts->size())) found.tokens[name] = (*texts)[std::size_t(id)];
  }
  return found;
}

// The first .gguf file of a folder that has no tokenizer files of its own.
std::optional<fs::path> gguf_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    if (fs::exists(folder / name)) return std::nullopt;
  std::optional<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf" && (!found || entry.path() < *found)) found = entry.path();
  return found;
}

}  // namespace

std::unique_ptr<ChatTemplate> ChatTemplate::load(const fs::path& model) {
  if (!fs::exists(model)) fail(ErrorKind::not_found, model.string(), ": no such file or folder");
  Found found;
  if (!fs::is_directory(model)) {
    found = model.extension() == ".gguf" ? in_gguf(GgufFile(model)) : in_folder(model.parent_path());
  } else if (const auto gguf = gguf_in(model)) {
    found = in_gguf(GgufFile(*gguf));
  } else {
    found = in_folder(model);
  }
  if (!found.plain) return nullptr;
  return std::make_unique<ChatTemplate>(*found.plain, found.tokens, found.with_tools);
}

}  // namespace slideway
