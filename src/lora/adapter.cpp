#include "lora/adapter.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <tuple>

#include "formats/safetensors.h"
#include "lora/adapter_tensors.h"

namespace slideway {
namespace {

constexpr std::align_val_t kAlign{64};

DType kept_type(const SafetensorsEntry& entry) {
  return entry.dtype == "BF16" ? DType::bf16 : DType::f32;
}

std::size_t room_for(std::int64_t elements, DType type) {
  const std::size_t bytes = std::size_t(elements) * bytes_of(type);
  return (bytes + std::size_t(kAlign) - 1) / std::size_t(kAlign) * std::size_t(kAlign);
}

fs::path tensor_file(const fs::path& folder) {
  const auto file = folder / "adapter_model.safetensors";
  if (fs::exists(file)) return file;
  if (fs::exists(folder / "adapter_model.bin"))
    fail(ErrorKind::unsupported, folder.string(),
         ": adapter_model.bin is a pickle, which can run code when it is read; save the adapter again with "
         "peft's "
         "safe_serialization=True");
  fail(ErrorKind::not_found, folder.string(), " has no adapter_model.safetensors");
}

class Digest {
 public:
  Digest() : hash_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(hash_ && EVP_DigestInit_ex(hash_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* data, std::size_t bytes) { EVP_DigestUpdate(hash_.get(), data, bytes); }
  void add(const std::string& text) { add(text.c_str(), text.size() + 1); }
  void add(const Tensor& tensor) {
    const std::string head = std::string(name_of(tensor.dtype())) + shape_text(tensor);
    add(head.data(), head.size());
    add(tensor.data(), tensor.bytes());
  }
  std::string hex() {
    unsigned char bytes[32];
    EVP_DigestFinal_ex(hash_.get(), bytes, nullptr);
    std::string hex;
    for (const unsigned char byte : bytes) {
      hex += "0123456789abcdef"[byte >> 4];
      hex += "0123456789abcdef"[byte & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash_;
};

// [R, V] as [V, R]: an embedding gathers by token.
void turn(const Tensor& to, const Tensor& from) {
  const std::int64_t R = from.size(0), V = from.size(1);
  for (std::int64_t v = 0; v < V; ++v)
    for (std::int64_t r = 0; r < R; ++r)
      if (from.dtype() == DType::f32)
        to.f32()[v * R + r] = from.f32()[r * V + v];
      else
        to.bf16()[v * R + r] = from.bf16()[r * V + v];
}

}  // namespace

// One load, from headers to numbers ready to serve.
class AdapterLoad {
 public:
  AdapterLoad(const fs::path& folder, const ModelLayout& layout, const FetchTensor& base)
      : layout_(layout),
        base_(base),
        config_(adapter_.config_ = load_adapter_config(folder)),
        file_(tensor_file(folder)) {
    found_ = find_modules(file_, config_, layout);
  }

  Adapter run() {
    take_memory();
    for (const auto* item : in_order()) read_module(item->first, item->second);
    bind_ends();
    for (std::size_t i = 0, l = 0; l <= layout_.layers.size(); ++l) {
      while (i < adapter_.modules_.size() && adapter_.modules_[i].layer < int(l)) ++i;
      adapter_.first_.push_back(i);
    }
    adapter_.digest_ = digest_.hex();
    return std::move(adapter_);
  }

 private:
  using Item = FoundModules::value_type;

  std::vector<const Item*> in_order() const {
    std::vector<const Item*> items;
    for (const Item& item : found_) items.push_back(&item);
    std::sort(items.begin(), items.end(), [](const Item* x, const Item* y) {
      return std::tuple(x->second.layer, x->second.role) < std::tuple(y->second.layer, y->second.role);
    });
    return items;
  }

  static bool has_affine(const FoundModule& found) {
    return found[Piece::magnitude] || found[Piece::bias] || found[Piece::b_bias];
  }

  void take_memory() {
    std::uint64_t bytes = 0;
    for (const auto& [name, found] : found_) {
      for (const Piece piece : {Piece::a, Piece::b, Piece::weight, Piece::tokens})
        if (const auto* entry = found[piece]) {
          const bool scaled = piece == Piece::b && found[Piece::magnitude];
          bytes += room_for(entry->elements(), scaled ? DType::f32 : kept_type(*entry));
        }
      if (has_affine(found)) bytes += 2 * room_for(outputs_of(found), DType::f32);
    }
    adapter_.bytes_ = bytes;
    adapter_.memory_.reset(static_cast<std::byte*>(::operator new[](bytes, kAlign)));
    next_ = adapter_.memory_.get();
  }

  static std::int64_t outputs_of(const FoundModule& found) {
    return found.weight->shape[found.is_embedding() ? 1 : 0];
  }

  Tensor take(DType type, std::span<const std::int64_t> shape) {
    const Tensor tensor(next_, type, shape);
    next_ += room_for(tensor.elements(), type);
    return tensor;
  }

  // Reads into to, of the entry's kept type; a number that is not finite is refused.
  void read(const SafetensorsEntry& entry, const Tensor& to) {
    const auto n = std::size_t(to.elements());
    const auto check = [&](std::size_t i, float value) {
      if (!std::isfinite(value))
        fail(ErrorKind::corrupt, file_.path().string(), ": ", entry.name, " holds ", value, " at element ",
             i);
    };
    if (to.dtype() == DType::bf16) {
      std::memcpy(to.data(), file_.bytes(entry).data(), to.bytes());
      for (std::size_t i = 0; i < n; ++i) check(i, to_float(to.bf16()[i]));
    } else {
      file_.read_f32(entry, {to.f32(), n});
      for (std::size_t i = 0; i < n; ++i) check(i, to.f32()[i]);
    }
    adapter_.parameters_ += to.elements();
    digest_.add(to);
  }
  Tensor read(const SafetensorsEntry& entry) {
    const Tensor to = take(kept_type(entry), entry.shape);
    read(entry, to);
    return to;
  }
  // Numbers that are needed while loading only.
  std::vector<float> read_f32(const SafetensorsEntry& entry, const char* kind) {
    std::vector<float> values(std::size_t(entry.elements()));
    digest_.add(std::string(kind));
    read(entry, Tensor(values.data(), DType::f32, entry.shape));
    return values;
  }
  std::vector<float> read_base(const TensorSpec& spec) const {
    CHECK(base_, "an adapter that needs the base's ", spec.name, " was loaded without the base");
    std::vector<float> values(std::size_t(spec.elements()));
    base_(spec, values);
    return values;
  }

  void read_module(const std::string& name, const FoundModule& found) {
    AdapterModule module{.layer = found.layer, .role = found.role, .name = name};
    module.scale = scale_of(config_, name);
    digest_.add(name);
    if (found[Piece::b]) {
      const auto scale = std::bit_cast<std::uint32_t>(module.scale);
      digest_.add(&scale, sizeof scale);
      module.a = found.is_embedding() ? read_turned(*found[Piece::a]) : read(*found[Piece::a]);
      module.b = found[Piece::magnitude] ? read_b_for_dora(*found[Piece::b]) : read(*found[Piece::b]);
    }
    if (has_affine(found)) make_affine(module, found);
    if (found[Piece::base_weight]) check_is_base(*found[Piece::base_weight], *found.weight);
    if (found.layer < 0) read_end(name, found);
    if (module.b || module.shift) adapter_.modules_.push_back(std::move(module));
  }

  Tensor read_turned(const SafetensorsEntry& entry) {
    std::vector<float> memory(std::size_t(entry.elements()));  // wide enough for either type
    const Tensor from(memory.data(), kept_type(entry), entry.shape);
    read(entry, from);
    const std::int64_t shape[] = {entry.shape[1], entry.shape[0]};
    const Tensor to = take(from.dtype(), shape);
    turn(to, from);
    return to;
  }

  Tensor read_b_for_dora(const SafetensorsEntry& entry) {
    const std::vector<float> b = read_f32(entry, "b");
    const Tensor to = take(DType::f32, entry.shape);
    std::copy(b.begin(), b.end(), to.f32());
    return to;
  }

  // y = factor · (W x + bias) + shift + scale · factor·B A x, where
  // factor = magnitude / ‖W + scale·BA‖ and shift = new bias − factor · bias + scale · bias of B.
  void make_affine(AdapterModule& module, const FoundModule& found) {
    const std::int64_t N = outputs_of(found), shape[] = {N};
    const auto n = std::size_t(N);
    std::vector<float> factor(n, 1.0f), bias(n), new_bias, of_b(n);
    if (found[Piece::magnitude]) {
      const auto magnitude = read_f32(*found[Piece::magnitude], "magnitude");
      const auto norms = norms_of(module, found);
      for (std::size_t i = 0; i < n; ++i) factor[i] = float(double(magnitude[i]) / norms[i]);
    }
    if (found.bias) bias = read_base(*found.bias);
    new_bias = found[Piece::bias] ? read_f32(*found[Piece::bias], "bias") : bias;
    if (found[Piece::b_bias]) of_b = read_f32(*found[Piece::b_bias], "b_bias");
    module.shift = take(DType::f32, shape);
    for (std::size_t i = 0; i < n; ++i) {
      module.shift.f32()[i] = new_bias[i] - factor[i] * bias[i] + module.scale * of_b[i];
      if (!std::isfinite(factor[i]) || !std::isfinite(module.shift.f32()[i]))
        fail(ErrorKind::corrupt, file_.path().string(), ": ", module.name, ": output ", i,
             " would be scaled by ", factor[i], " and shifted by ", module.shift.f32()[i]);
    }
    const Tensor factors = take(DType::f32, shape);
    std::copy(factor.begin(), factor.end(), factors.f32());
    if (!found[Piece::magnitude]) return;
    module.factor = factors;
    const std::int64_t R = module.rank();
    for (std::int64_t i = 0; i < N * R; ++i) module.b.f32()[i] *= factor[std::size_t(i / R)];
  }

  // ‖W + scale·BA‖ of each output; an embedding's outputs are its columns.
  std::vector<double> norms_of(const AdapterModule& module, const FoundModule& found) const {
    const std::vector<float> w = read_base(*found.weight), a = widened(module.a), b = widened(module.b);
    const bool turned = found.is_embedding();
    const auto N = std::size_t(outputs_of(found)), R = std::size_t(module.rank()), C = w.size() / N;
    std::vector<double> sums(N);
    std::vector<float> row(C);
    for (std::size_t n = 0; n < N; ++n) {
      for (std::size_t c = 0; c < C; ++c) row[c] = turned ? w[c * N + n] : w[n * C + c];
      for (std::size_t r = 0; r < R; ++r) {
        const float factor = module.scale * b[n * R + r];
        for (std::size_t c = 0; c < C; ++c) row[c] += factor * (turned ? a[c * R + r] : a[r * C + c]);
      }
      for (const float value : row) sums[n] += double(value) * value;
    }
    for (double& sum : sums) sum = std::sqrt(sum);
    return sums;
  }

  // peft saves the weights under an adapted embedding along with it. They should be the base's, but for rounding.
  void check_is_base(const SafetensorsEntry& entry, const TensorSpec& spec) const {
    const std::vector<float> base = read_base(spec);
    std::vector<float> found(base.size());
    file_.read_f32(entry, found);
    const auto near = [](float x, float y) { return std::abs(x - y) <= 0x1p-7f * std::abs(y) + 1e-30f; };
    for (std::size_t i = 0; i < base.size(); ++i)
      if (!near(found[i], base[i]))
        fail(ErrorKind::unsupported, file_.path().string(), ": ", entry.name,
             " should be a copy of the base's ", spec.name, ", but element ", i, " is ", found[i], ", there ",
             base[i]);
  }

  void read_end(const std::string& name, const FoundModule& found) {
    AdapterEnd& end = found.is_embedding() ? adapter_.embedding_ : adapter_.head_;
    if (const auto* entry = found[Piece::weight]) {
      digest_.add(std::string("weight"));
      if (is_saved_whole(name))
        end.weight = read(*entry);
      else
        check_is_base(*entry, *found.weight);
    }
    if (const auto* entry = found[Piece::tokens]) {
      for (const std::int64_t token : tokens_of(config_, name)) end.tokens.push_back(std::int32_t(token));
      digest_.add(end.tokens.data(), end.tokens.size() * sizeof(std::int32_t));
      end.rows = read(*entry);
    }
  }
  bool is_saved_whole(const std::string& name) const {
    return std::any_of(config_.modules_to_save.begin(), config_.modules_to_save.end(),
                       [&](const std::string& saved) { return is_named(name, saved); });
  }

  void bind_ends() {
    for (const AdapterModule& module : adapter_.modules_) {
      if (module.role == Role::embed_tokens) adapter_.embedding_.module = &module;
      if (module.role == Role::lm_head) adapter_.head_.module = &module;
    }
    const bool tied = !layout_.head.find(Role::lm_head);
    if (!tied || adapter_.head_.rows || !adapter_.embedding_.rows) return;
    adapter_.head_.tokens = adapter_.embedding_.tokens;
    adapter_.head_.rows = adapter_.embedding_.rows;
  }

  const ModelLayout& layout_;
  const FetchTensor& base_;
  Adapter adapter_;
  const AdapterConfig& config_;
  SafetensorsFile file_;
  FoundModules found_;
  std::byte* next_ = nullptr;
  Digest digest_;
};

void Adapter::Freed::operator()(std::byte* data) const {
  ::operator delete[](data, kAlign);
}

std::span<const AdapterModule> Adapter::modules_of(int layer) const {
  const std::size_t begin = first_.at(std::size_t(layer)), end = first_.at(std::size_t(layer) + 1);
  return std::span(modules_).subspan(begin, end - begin);
}

std::int64_t Adapter::max_rank() const {
  std::int64_t rank = 0;
  for (const AdapterModule& module : modules_) rank = std::max(rank, module.rank());
  return rank;
}

Adapter load_adapter(const std::filesystem::path& folder, const ModelLayout& layout,
                     const FetchTensor& base) {
  return AdapterLoad(folder, layout, base).run();
}

}  // namespace slideway
