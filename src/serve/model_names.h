// ModelNames: what a request's "model" may say, and what it means: the base model or one of its adapters.
//
// Adapters come from a folder, where each subfolder with an adapter_config.json is one of its name, and from load().
// The folder is looked at again every few seconds (rescan): what is new, gone or written anew is seen, once its config is
// JSON and its weights are as long as their header says, so that nothing is served while it is written; what was unloaded
// stays so until it is loaded, or its folder goes and comes again. "base:adapter" is another way to say "adapter". A name that a
// key may not use is not found.
//
// An adapter's folder may bring a chat template, which is then its own, and a tokenizer, which must be the model's.
//
// A name is a text of up to 256 bytes without control characters, "..", a backslash or a % code, and not a path from the
// root: it is never joined to a path that something is written to or removed from.
//
// Threads  any
// Errors   ApiError with vLLM's texts
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lora/adapter.h"
#include "serve/access.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace slideway {

class ModelNames {
 public:
  struct Found {
    std::string name;
    std::shared_ptr<const Adapter> adapter;    // null: the base model
    std::shared_ptr<const ChatTemplate> chat;  // the adapter's own; null: the model's
  };
  struct Card {
    std::string name;
    std::string root;  // where it lies
    bool adapter = false;
    std::shared_ptr<const Adapter> loaded = {};  // null: the base, or not read yet
    std::int64_t requests = 0;                   // that named it
  };

  // base: the base model's names, the first its own; root: its path. folder: of adapters; empty: none.
  // weights: the base's numbers, for adapters that need them. chat: the model's, or null. What is referred to outlives this.
  ModelNames(std::vector<std::string> base, std::string root, const ModelLayout& layout, FetchTensor weights,
             const Tokenizer& tokenizer, const ChatTemplate* chat, std::filesystem::path folder);

  // Loads an adapter that is used for the first time. An empty name is the base model's.
  Found find(const std::string& model, const AccessKey* key);
  void count(const Found& found);                       // a request for it
  std::vector<Card> cards(const AccessKey* key) const;  // base first
  const std::string& base() const { return base_.front(); }

  void load(const std::string& name, const std::string& path, bool replace);
  void unload(const std::string& name);
  void rescan();

 private:
  struct Loaded {
    std::shared_ptr<const Adapter> adapter;  // null: not loaded yet
    std::shared_ptr<const ChatTemplate> chat;
  };
  struct Entry {
    std::filesystem::path path;
    Loaded loaded;
    std::filesystem::file_time_type changed = {};
    bool by_hand = false;  // load() named it
    std::int64_t requests = 0;
  };
  struct Seen {
    std::filesystem::file_time_type changed;
    bool whole = false;  // else half-written
  };
  std::filesystem::path inside(const std::string& path) const;
  Loaded read(const std::filesystem::path& folder) const;

  std::vector<std::string> base_;
  std::string root_;
  const ModelLayout& layout_;
  FetchTensor weights_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::set<std::string> unloaded_;    // by hand, though their folders are still there
  std::map<std::string, Seen> seen_;  // the folder's, as they were when they were looked into
  std::int64_t base_requests_ = 0;
};

}  // namespace slideway
