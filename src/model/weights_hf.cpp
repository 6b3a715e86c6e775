#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "core/error.h"
#include "core/log.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "model/weight_sources.h"

namespace slideway {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// Tensors that some checkpoints carry although the model computes them.
bool is_recomputed(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

// weight_map of the index: the shard of each tensor. A shard is a file beside the index.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const std::string where = index.string();
  const SortedJson json = parse_sorted_json(read_text(index), where);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    fail(ErrorKind::corrupt, where, ": there is no object weight_map");
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) fail(ErrorKind::corrupt, where, ": the shard of ", tensor, " is not a name");
    const auto name = shard.get<std::string>();
    if (name.empty() || name != fs::path(name).filename() || name == "." || name == "..")
      fail(ErrorKind::corrupt, where, ": the shard of ", tensor, " is \"", name,
           "\"; a file beside the index is expected");
    shards.emplace(tensor, name);
  }
  return shards;
}

// The shards of a folder and where each tensor lies in them.
class Shards {
 public:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };

  explicit Shards(const fs::path& folder) {
    if (fs::exists(folder / kIndex))
      open_indexed(folder);
    else if (fs::exists(folder / kSingle))
      open_all(folder, {kSingle});
    else
      refuse(folder);
  }

  const Place* find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &found->second;
  }
  const std::unordered_map<std::string, Place>& places() const { return places_; }

 private:
  void open_indexed(const fs::path& folder) {
    const auto weight_map = read_weight_map(folder / kIndex);
    std::set<std::string> names;
    for (const auto& [tensor, shard] : weight_map) names.insert(shard);
    open_all(folder, names);
    for (const auto& [tensor, shard] : weight_map) {
      const Place* place = find(tensor);
      if (!place || place->file->path() != folder / shard)
        fail(ErrorKind::corrupt, (folder / shard).string(), ": the tensor ", tensor,
             " is not in this shard, although ", kIndex, " says so");
    }
  }

  void open_all(const fs::path& folder, const std::set<std::string>& names) {
    for (const std::string& name : names)
      if (!fs::exists(folder / name))
        fail(ErrorKind::not_found, (folder / name).string(), ": this shard is named in ", kIndex,
             " but is not there");
    for (const std::string& name : names) {
      const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(folder / name));
      for (const SafetensorsEntry& entry : file.entries()) {
        const auto [place, is_new] = places_.emplace(entry.name, Place{&file, &entry});
        if (!is_new)
          fail(ErrorKind::corrupt, folder.string(), ": the tensor ", entry.name, " is both in ",
               place->second.file->path().filename().string(), " and in ", name);
      }
    }
  }

  [[noreturn]] static void refuse(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (const std::string name = entry.path().filename();
          name.starts_with("pytorch_model") || name.ends_with(".pth"))
        fail(ErrorKind::unsupported, folder.string(), ": only ", name,
             " is here; PyTorch pickles are not read, convert the model to safetensors");
    fail(ErrorKind::not_found, folder.string(), ": there is neither ", kSingle, " nor ", kIndex);
  }

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, Place> places_;
};

bool equal_bytes(const Shards::Place& a, const Shards::Place& b) {
  const auto x = a.file->bytes(*a.entry), y = b.file->bytes(*b.entry);
  const bool equal = a.entry->dtype == b.entry->dtype && x.size() == y.size() &&
                     std::memcmp(x.data(), y.data(), x.size()) == 0;
  a.file->drop(*a.entry);
  b.file->drop(*b.entry);
  return equal;
}

class HfWeights : public WeightFiles {
 public:
  explicit HfWeights(const fs::path& folder) : shards_(folder) {
    path_ = folder;
    config_ = load_config(folder);
    settle_tying();
    layout_ = make_layout(config_);
    check_tensors();
    if (config_.torch_dtype.empty()) {
      const std::string type = stored_type(layout_.embed.tensors.front());
      config_.torch_dtype = type == "F32" ? "float32" : type == "F16" ? "float16" : "bfloat16";
    }
  }

  bool is_gguf() const override { return false; }
  std::string stored_type(const TensorSpec& spec) const override { return at(spec).entry->dtype; }

  void read(const TensorSpec& spec, std::span<float> out) const override {
    const Shards::Place& place = at(spec);
    place.file->read_f32(*place.entry, out);
    check_finite(spec, out, place.file->path().string());
  }

  std::vector<fs::path> other_files() const override {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path_))
      if (entry.is_regular_file() && is_carried(entry.path().filename())) files.push_back(entry.path());
    if (const fs::path templates = path_ / "additional_chat_templates"; fs::is_directory(templates))
      for (const auto& entry : fs::directory_iterator(templates))
        if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  // Weights in any format, and what is not the model's, stay behind; config.json is written by whoever saves.
  static bool is_carried(const std::string& name) {
    if (name.starts_with(".") || name == "config.json") return false;
    for (const char* suffix :
         {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json"})
      if (name.ends_with(suffix)) return false;
    return true;
  }

  // Tied, but the file has a head of its own: as in transformers the head counts unless it equals the embedding,
  // and a head alone serves as the embedding.
  void settle_tying() {
    if (!config_.tie_word_embeddings) return;
    const Shards::Place* head = shards_.find(kHead);
    const Shards::Place* embedding = shards_.find(kEmbedding);
    if (!head || !embedding || equal_bytes(*head, *embedding)) return;
    log(LogLevel::warning, path_.string(), ": tie_word_embeddings is true, but ", kHead, " differs from ",
        kEmbedding, "; the head is used as it is stored");
    config_.tie_word_embeddings = false;
  }

  const Shards::Place& at(const TensorSpec& spec) const {
    const Shards::Place* place = shards_.find(spec.name);
    if (!place && spec.role == Role::embed_tokens && config_.tie_word_embeddings) place = shards_.find(kHead);
    if (!place)
      fail(ErrorKind::not_found, path_.string(), ": the tensor ", spec.name, " ", shape_text(spec.shape),
           " is missing",
           spec.role == Role::lm_head
               ? "; tie_word_embeddings is not true, so the model needs a head of its own"
               : "");
    return *place;
  }

  void check_tensors() const {
    std::set<std::string> used;
    if (config_.tie_word_embeddings) used.insert(kHead);
    for (const BlockLayout* block : layout_.blocks())
      for (const TensorSpec& spec : block->tensors) {
        const auto& [file, entry] = at(spec);
        used.insert(entry->name);
        if (entry->shape != spec.shape)
          fail(ErrorKind::corrupt, file->path().string(), ": the tensor ", entry->name, " is ",
               shape_text(entry->shape), "; ", shape_text(spec.shape), " is expected after config.json");
        if (entry->dtype != "F32" && entry->dtype != "BF16" && entry->dtype != "F16")
          fail(ErrorKind::unsupported, file->path().string(), ": the tensor ", entry->name, " is stored as ",
               entry->dtype, "; F32, BF16 and F16 are read");
      }
    for (const auto& [name, place] : shards_.places())
      if (!used.contains(name) && !is_recomputed(name))
        fail(ErrorKind::unsupported, place.file->path().string(), ": the tensor ", name, " ",
             shape_text(place.entry->shape), " has no place in a ", config_.family, " model");
  }

  Shards shards_;
};

}  // namespace

std::unique_ptr<WeightFiles> open_hf_folder(const std::filesystem::path& folder) {
  return std::make_unique<HfWeights>(folder);
}

}  // namespace slideway
