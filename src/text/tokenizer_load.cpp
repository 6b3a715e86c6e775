// Where a tokenizer comes from: a folder, a file, GGUF metadata.
#include "core/error.h"
#include "core/file.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"

namespace slideway {
namespace {

// A string, or an object with the token's content; null as good as absent.
std::int32_t id_named(const Tokenizer::Parts& parts, const Json& config, const char* key,
                      const std::string& where) {
  const auto field = config.find(key);
  if (field == config.end() || field->is_null()) return -1;
  const Json content = field->is_object() ? field->value("content", Json()) : *field;
  if (!content.is_string()) {
    fail(ErrorKind::corrupt, where, ": ", key, " must be a token's text, found ", field->dump());
  }
  const auto name = content.get<std::string>();
  const std::int32_t id = parts.id_of(name);
  if (id < 0)
    fail(ErrorKind::corrupt, where, ": ", key, " is ", name, ", which is no token of the tokenizer");
  return id;
}

bool is_set(const Json& config, const char* key, const std::string& where) {
  const auto field = config.find(key);
  if (field == config.end() || field->is_null()) return false;
  if (!field->is_boolean()) fail(ErrorKind::corrupt, where, ": ", key, " must be true or false");
  return field->get<bool>();
}

// BOS and EOS, and whether they are put around a text.
void read_config(Tokenizer::Parts& parts, std::string_view text, const std::string& where) {
  const Json config = parse_json(text, where);
  if (!config.is_object()) fail(ErrorKind::corrupt, where, ": expected an object");
  parts.bos = id_named(parts, config, "bos_token", where);
  parts.eos = id_named(parts, config, "eos_token", where);
  if (!config.contains("add_bos_token") && !config.contains("add_eos_token")) return;
  parts.prefix.clear();
  parts.suffix.clear();
  if (is_set(config, "add_bos_token", where) && parts.bos >= 0) parts.prefix = {parts.bos};
  if (is_set(config, "add_eos_token", where) && parts.eos >= 0) parts.suffix = {parts.eos};
}

fs::path only_gguf_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
  }
  if (found.size() == 1) return found[0];
  fail(ErrorKind::not_found, folder.string(), ": there is no tokenizer.json, and ", found.size(),
       " .gguf files; name the file meant");
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string json, std::string config,
                                                const std::string& where) {
  TokenizerJson reader(json, where);
  auto parts = std::make_unique<Parts>(reader.read(), std::move(json));
  if (!config.empty()) read_config(*parts, config, where + ", tokenizer_config.json");
  parts->config = std::move(config);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(const GgufFile& gguf) {
  return from_json(tokenizer_json_of(gguf), tokenizer_config_json_of(gguf), gguf.path().string());
}

std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& path) {
  if (!fs::exists(path)) fail(ErrorKind::not_found, path.string(), ": no such file or folder");
  fs::path file = path;
  if (fs::is_directory(path)) {
    file = path / "tokenizer.json";
    if (!fs::exists(file)) file = only_gguf_in(path);
  }
  if (file.extension() == ".gguf") return from_gguf(GgufFile(file));
  const fs::path config = file.parent_path() / "tokenizer_config.json";
  return from_json(read_text(file), fs::exists(config) ? read_text(config) : "", file.string());
}

}  // namespace slideway
