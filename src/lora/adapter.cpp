#include "lora/adapter.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <tuple>

#include "formats/safetensors.h"

namespace slideway {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr std::size_t kNamesShown = 16;

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > kNamesShown) out += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return out;
}

// A module of the model that an adapter may change.
struct Place {
  int layer;
  const TensorSpec* spec;
};

std::map<std::string, Place> places_of(const ModelLayout& layout) {
  std::map<std::string, Place> places;
  for (int l = 0; l < int(layout.layers.size()); ++l)
    for (const TensorSpec& spec : layout.layers[std::size_t(l)].tensors)
      if (is_lora_role(spec.role)) places[module_name(spec)] = {l, &spec};
  return places;
}

// "base_model.model.<module>.lora_A.weight"; the prefix may be absent, and the adapter's own name "default"
// present.
struct TensorName {
  std::string module;
  bool is_a = false;
};

bool parse_name(std::string_view name, TensorName& out) {
  if (const std::string_view prefix = kPeftPrefix; name.starts_with(prefix))
    name.remove_prefix(prefix.size());
  for (const std::string_view suffix :
       {".lora_A.weight", ".lora_B.weight", ".lora_A.default.weight", ".lora_B.default.weight"}) {
    if (!name.ends_with(suffix)) continue;
    out = {std::string(name.substr(0, name.size() - suffix.size())), suffix[6] == 'A'};
    return true;
  }
  return false;
}

// The tensors of one module in the file, and where they belong.
struct Found {
  const SafetensorsEntry* a = nullptr;
  const SafetensorsEntry* b = nullptr;
  Place place{};
};

// The checks that need no numbers: every tensor has a place and its partner, and all shapes agree with the
// config.
class HeaderCheck {
 public:
  HeaderCheck(const SafetensorsFile& file, const AdapterConfig& config, const ModelLayout& layout)
      : file_(file), config_(config), places_(places_of(layout)) {}

  std::map<std::string, Found> run() {
    match_names();
    for (const auto& [module, found] : modules_) check_module(module, found);
    check_missing();
    return std::move(modules_);
  }

 private:
  std::string where() const { return file_.path().string(); }

  void match_names() {
    std::vector<std::string> homeless;
    for (const SafetensorsEntry& entry : file_.entries()) {
      TensorName name;
      const bool parsed = parse_name(entry.name, name);
      const auto place = parsed ? places_.find(name.module) : places_.end();
      if (place == places_.end()) {
        homeless.push_back(entry.name);
        continue;
      }
      Found& found = modules_[name.module];
      found.place = place->second;
      const SafetensorsEntry*& slot = name.is_a ? found.a : found.b;
      if (slot)
        fail(ErrorKind::corrupt, where(), ": ", slot->name, " and ", entry.name, " are the same tensor");
      slot = &entry;
    }
    if (!homeless.empty())
      fail(ErrorKind::unsupported, where(),
           ": these tensors fit no linear layer of the model's decoder: ", listed(homeless),
           "; expected names such as ", kPeftPrefix, places_.empty() ? "…" : places_.begin()->first,
           ".lora_A.weight");
    if (modules_.empty()) fail(ErrorKind::corrupt, where(), ": no LoRA tensors in the file");
  }

  void check_module(const std::string& module, const Found& found) const {
    if (!found.a || !found.b)
      fail(ErrorKind::corrupt, where(), ": ", (found.a ? found.a : found.b)->name, " has no lora_",
           found.a ? "B" : "A", " beside it");
    if (!selects(config_, module))
      fail(ErrorKind::corrupt, where(), ": ", found.a->name,
           " is there, but adapter_config.json does not name its module (target_modules, exclude_modules, "
           "layers_to_transform)");
    const std::int64_t rank = rank_of(config_, module);
    check_tensor(*found.a, {rank, found.place.spec->shape[1]});
    check_tensor(*found.b, {found.place.spec->shape[0], rank});
  }

  void check_tensor(const SafetensorsEntry& entry, const std::vector<std::int64_t>& expected) const {
    if (entry.shape != expected)
      fail(ErrorKind::corrupt, where(), ": ", entry.name, " should be ", shape_text(expected),
           " by the model and the config's rank, found ", shape_text(entry.shape));
    if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16")
      fail(ErrorKind::unsupported, where(), ": ", entry.name, " should be F32, BF16 or F16, found ",
           entry.dtype);
  }

  void check_missing() const {
    if (config_.target_modules.kind == ModuleChoice::Kind::none) return;
    std::vector<std::string> missing;
    for (const auto& [module, place] : places_)
      if (!modules_.contains(module) && selects(config_, module)) missing.push_back(module);
    if (!missing.empty())
      fail(ErrorKind::corrupt, where(),
           ": adapter_config.json names modules that have no tensors here: ", listed(missing));
  }

  const SafetensorsFile& file_;
  const AdapterConfig& config_;
  std::map<std::string, Place> places_;
  std::map<std::string, Found> modules_;
};

DType kept_type(const SafetensorsEntry& entry) {
  return entry.dtype == "BF16" ? DType::bf16 : DType::f32;
}

std::size_t room_for(const SafetensorsEntry& entry) {
  const std::size_t bytes = std::size_t(entry.elements()) * bytes_of(kept_type(entry));
  return (bytes + std::size_t(kAlign) - 1) / std::size_t(kAlign) * std::size_t(kAlign);
}

Tensor read_tensor(const SafetensorsFile& file, const SafetensorsEntry& entry, std::byte* memory) {
  const Tensor tensor(memory, kept_type(entry), entry.shape);
  const auto n = std::size_t(tensor.elements());
  const auto check = [&](std::size_t i, float value) {
    if (!std::isfinite(value))
      fail(ErrorKind::corrupt, file.path().string(), ": ", entry.name, " holds ", value, " at element ", i);
  };
  if (tensor.dtype() == DType::bf16) {
    std::memcpy(memory, file.bytes(entry).data(), tensor.bytes());
    for (std::size_t i = 0; i < n; ++i) check(i, to_float(tensor.bf16()[i]));
  } else {
    file.read_f32(entry, {tensor.f32(), n});
    for (std::size_t i = 0; i < n; ++i) check(i, tensor.f32()[i]);
  }
  return tensor;
}

std::string digest_of(std::span<const AdapterModule> modules) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  CHECK(hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1);
  const auto add = [&](const void* data, std::size_t bytes) { EVP_DigestUpdate(hash.get(), data, bytes); };
  const auto add_tensor = [&](const Tensor& tensor) {
    const std::string head = std::string(name_of(tensor.dtype())) + shape_text(tensor);
    add(head.data(), head.size());
    add(tensor.data(), tensor.bytes());
  };
  for (const AdapterModule& module : modules) {
    add(module.name.c_str(), module.name.size() + 1);
    const auto scale = std::bit_cast<std::uint32_t>(module.scale);
    add(&scale, sizeof scale);
    add_tensor(module.a);
    add_tensor(module.b);
  }
  unsigned char bytes[32];
  EVP_DigestFinal_ex(hash.get(), bytes, nullptr);
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

fs::path tensors_of(const fs::path& folder) {
  const auto file = folder / "adapter_model.safetensors";
  if (fs::exists(file)) return file;
  if (fs::exists(folder / "adapter_model.bin"))
    fail(ErrorKind::unsupported, folder.string(),
         ": adapter_model.bin is a pickle, which can run code when it is read; save the adapter again with "
         "peft's "
         "safe_serialization=True");
  fail(ErrorKind::not_found, folder.string(), " has no adapter_model.safetensors");
}

}  // namespace

void Adapter::Freed::operator()(std::byte* data) const {
  ::operator delete[](data, kAlign);
}

std::span<const AdapterModule> Adapter::modules_of(int layer) const {
  const std::size_t begin = first_.at(std::size_t(layer)), end = first_.at(std::size_t(layer) + 1);
  return std::span(modules_).subspan(begin, end - begin);
}

std::int64_t Adapter::parameters() const {
  std::int64_t sum = 0;
  for (const AdapterModule& module : modules_) sum += module.a.elements() + module.b.elements();
  return sum;
}

Adapter load_adapter(const std::filesystem::path& folder, const ModelLayout& layout) {
  Adapter adapter;
  adapter.config_ = load_adapter_config(folder);
  const SafetensorsFile file(tensors_of(folder));
  const auto modules = HeaderCheck(file, adapter.config_, layout).run();

  for (const auto& [name, found] : modules) adapter.bytes_ += room_for(*found.a) + room_for(*found.b);
  adapter.memory_.reset(static_cast<std::byte*>(::operator new[](adapter.bytes_, kAlign)));
  std::byte* memory = adapter.memory_.get();
  for (const auto& [name, found] : modules) {
    AdapterModule module{.layer = found.place.layer, .role = found.place.spec->role, .name = name};
    module.a = read_tensor(file, *found.a, memory);
    memory += room_for(*found.a);
    module.b = read_tensor(file, *found.b, memory);
    memory += room_for(*found.b);
    module.scale = scale_of(adapter.config_, name);
    adapter.modules_.push_back(std::move(module));
  }
  const auto place = [](const AdapterModule& m) { return std::tuple(m.layer, m.role); };
  std::sort(adapter.modules_.begin(), adapter.modules_.end(),
            [&](const AdapterModule& x, const AdapterModule& y) { return place(x) < place(y); });
  for (std::size_t i = 0, l = 0; l <= layout.layers.size(); ++l) {
    while (i < adapter.modules_.size() && adapter.modules_[i].layer < int(l)) ++i;
    adapter.first_.push_back(i);
  }
  adapter.digest_ = digest_of(adapter.modules_);
  return adapter;
}

}  // namespace slideway
