#include "serve/model_names.h"

#include <algorithm>

#include "core/file.h"
#include "core/log.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "serve/api_error.h"
#include "serve/fields.h"

namespace slideway {
namespace {

constexpr std::size_t kMaxNameBytes = 256;
const char* const kConfigName = "adapter_config.json";
const char* const kWeightsName = "adapter_model.safetensors";

bool is_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  if (name.front() == '/' || name.find("..") != std::string::npos) return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\' || c == '%';
  });
}

bool within(const fs::path& path, const fs::path& root) {
  const auto [rest, _] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return rest == root.end();
}

// When its files were last written.
fs::file_time_type changed_at(const fs::path& folder) {
  fs::file_time_type last = fs::file_time_type::min();
  for (const char* name : {kConfigName, kWeightsName}) {
    std::error_code error;
    const auto time = fs::last_write_time(folder / name, error);
    if (!error) last = std::max(last, time);
  }
  return last;
}

// Empty for a folder with a whole adapter's files, whatever is in them; else what is missing, perhaps only yet.
std::string missing_in(const fs::path& folder) {
  try {
    load_json(folder / kConfigName);
    SafetensorsFile(folder / kWeightsName);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// A tokenizer beside an adapter says what the adapter was trained with.
void check_tokenizer(const fs::path& folder, const Tokenizer& model) {
  const fs::path path = folder / "tokenizer.json";
  if (!fs::exists(path) || read_text(path) == model.to_json()) return;
  const auto own = Tokenizer::load(folder);
  if (own->vocab_size() != model.vocab_size())
    fail(ErrorKind::unsupported, path.string(), ": the adapter's tokenizer has ", own->vocab_size(),
         " tokens, the model's ", model.vocab_size());
  for (std::int32_t id = 0; id < model.vocab_size(); ++id)
    if (own->token(id) != model.token(id))
      fail(ErrorKind::unsupported, path.string(), ": token ", id, " is ", shown(own->token(id)),
           " to the adapter's tokenizer, ", shown(model.token(id)), " to the model's");
}

[[noreturn]] void fail_unknown(const std::string& name) {
  fail_api({.status = 404, .param = "model", .code = "model_not_found"}, "The model `", name,
           "` does not exist.");
}

}  // namespace

ModelNames::ModelNames(std::vector<std::string> base, std::string root, const ModelLayout& layout,
                       FetchTensor weights, const Tokenizer& tokenizer, const ChatTemplate* chat,
                       fs::path folder)
    : base_(std::move(base)),
      root_(std::move(root)),
      layout_(layout),
      weights_(std::move(weights)),
      tokenizer_(tokenizer),
      chat_(chat),
      folder_(std::move(folder)) {
  if (folder_.empty()) return;
  if (!fs::is_directory(folder_))
    fail(ErrorKind::not_found, "there is no folder of adapters ", folder_.string());
  folder_ = fs::canonical(folder_);
  rescan();
}

ModelNames::Found ModelNames::find(const std::string& model, const AccessKey* key) {
  if (model.empty() || std::find(base_.begin(), base_.end(), model) != base_.end()) {
    if (key && !key->base) fail_unknown(model.empty() ? base() : model);
    return {.name = model.empty() ? base() : model};
  }
  std::string name = model;
  std::unique_lock lock(mutex_);
  auto found = entries_.find(name);
  for (const std::string& base : base_) {
    if (found != entries_.end() || !model.starts_with(base + ":")) continue;
    name = model.substr(base.size() + 1);
    found = entries_.find(name);
  }
  if (found == entries_.end() || (key && !key->may_use(name))) fail_unknown(model);
  if (const Loaded& loaded = found->second.loaded; loaded.adapter) return {name, loaded.adapter, loaded.chat};
  // Reading takes a while: others go on meanwhile, and the first to have read it wins.
  const fs::path path = found->second.path;
  lock.unlock();
  Loaded loaded = read(path);
  lock.lock();
  found = entries_.find(name);
  if (found == entries_.end() || found->second.path != path) fail_unknown(model);
  if (!found->second.loaded.adapter) found->second.loaded = std::move(loaded);
  return {name, found->second.loaded.adapter, found->second.loaded.chat};
}

void ModelNames::count(const Found& found) {
  const std::lock_guard lock(mutex_);
  if (!found.adapter) ++base_requests_;
  if (const auto entry = entries_.find(found.name); found.adapter && entry != entries_.end())
    ++entry->second.requests;
}

ModelNames::Loaded ModelNames::read(const fs::path& folder) const {
  Loaded out;
  out.adapter = std::make_shared<const Adapter>(load_adapter(folder, layout_, weights_));
  check_tokenizer(folder, tokenizer_);
  const auto own = ChatTemplate::load(folder);
  if (!own || (chat_ && own->source() == chat_->source())) return out;
  // With the model's special tokens, since the folder need not have them.
  out.chat =
      chat_ ? chat_->with_source(own->source()) : std::make_unique<ChatTemplate>(own->source(), "", "");
  return out;
}

std::vector<ModelNames::Card> ModelNames::cards(const AccessKey* key) const {
  std::vector<Card> out;
  const std::lock_guard lock(mutex_);
  if (!key || key->base)
    for (const std::string& name : base_)
      out.push_back({.name = name, .root = root_, .requests = base_requests_});
  for (const auto& [name, entry] : entries_)
    if (!key || key->may_use(name))
      out.push_back({.name = name,
                     .root = entry.path.string(),
                     .adapter = true,
                     .loaded = entry.loaded.adapter,
                     .requests = entry.requests});
  return out;
}

// A path of a load request: beneath the folder of adapters, links followed.
fs::path ModelNames::inside(const std::string& path) const {
  if (folder_.empty())
    fail_api({.type = "BadRequestError", .param = "lora_path"}, "The server was started without --adapters.");
  if (path.find('\0') != std::string::npos) fail_field("lora_path", "lora_path holds a NUL byte");
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(folder_ / path, error);
  if (error || !within(whole, folder_))
    fail_api({.type = "BadRequestError", .param = "lora_path"},
             "lora_path should lie in the server's folder of adapters.");
  return whole;
}

void ModelNames::load(const std::string& name, const std::string& path, bool replace) {
  if (!is_name(name))
    fail_api({.type = "BadRequestError", .param = "lora_name"}, "lora_name should be a plain name of up to ",
             kMaxNameBytes, " bytes, found ", shown(name));
  if (std::find(base_.begin(), base_.end(), name) != base_.end())
    fail_api({.type = "InvalidUserInput", .param = "lora_name"}, "The name '", name,
             "' is the base model's.");
  const fs::path folder = inside(path);
  const auto fail_loaded = [&] {
    fail_api({.type = "InvalidUserInput", .param = "lora_name"}, "The lora adapter '", name,
             "' has already been loaded.",
             " If you want to load the adapter in place, set 'load_inplace' to True.");
  };
  const auto taken = [&] {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    return found != entries_.end() && found->second.loaded.adapter;
  };
  if (!replace && taken()) fail_loaded();
  if (!fs::exists(folder / kConfigName))
    fail_api({.status = 404, .type = "NotFoundError", .param = "lora_path"}, "Loading lora ", name,
             " failed: No adapter found for ", path);
  Loaded loaded;
  try {
    loaded = read(folder);
  } catch (const Error& error) {
    if (status_of(error.kind()) >= 500) throw;
    fail_api({.type = "BadRequestError", .param = "lora_path"}, error.what());
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[name];
  if (entry.loaded.adapter && !replace) fail_loaded();
  unloaded_.erase(name);
  entry = {.path = folder, .loaded = std::move(loaded), .by_hand = true, .requests = entry.requests};
}

void ModelNames::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (entries_.erase(name) == 0)
    fail_api({.status = 404, .type = "NotFoundError", .param = "lora_name"}, "The lora adapter '", name,
             "' cannot be found.");
  unloaded_.insert(name);
}

void ModelNames::rescan() {
  if (folder_.empty()) return;
  std::map<std::string, Seen> before, there;
  {
    const std::lock_guard lock(mutex_);
    before = seen_;
  }
  std::error_code error;
  for (const fs::directory_entry& item : fs::directory_iterator(folder_, error)) {
    const std::string name = item.path().filename().string();
    if (is_leftover(item.path()) || !is_name(name) || !fs::exists(item.path() / kConfigName)) continue;
    if (!within(fs::weakly_canonical(item.path()), folder_)) continue;
    Seen& seen = there[name] = {.changed = changed_at(item.path())};
    if (const auto last = before.find(name); last != before.end() && last->second.changed == seen.changed) {
      seen.whole = last->second.whole;
      continue;
    }
    const std::string missing = missing_in(item.path());
    seen.whole = missing.empty();
    if (!seen.whole) log(LogLevel::warning, "adapter ", name, " is not served as it is now: ", missing);
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(unloaded_, [&](const std::string& name) { return !there.contains(name); });
  std::erase_if(entries_,
                [&](const auto& entry) { return !entry.second.by_hand && !there.contains(entry.first); });
  for (const auto& [name, seen] : there) {
    if (unloaded_.contains(name) || !seen.whole) continue;  // what was read before serves on
    Entry& entry =
        entries_.try_emplace(name, Entry{.path = folder_ / name, .changed = seen.changed}).first->second;
    if (entry.by_hand || entry.changed == seen.changed) continue;
    entry.loaded = {};  // other files than those that were read
    entry.changed = seen.changed;
  }
  seen_ = std::move(there);
}

}  // namespace slideway
