#include "lora/lora_layout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/file.h"
#include "core/random.h"
#include "formats/safetensors.h"

namespace slideway {
namespace {

std::int64_t aligned(std::int64_t elements) {
  return (elements + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
}

LoraModule make_module(int layer, const TensorSpec& spec, const AdapterConfig& config,
                       std::int64_t& elements) {
  LoraModule module{.layer = layer, .role = spec.role, .name = module_name(spec)};
  module.outputs = spec.shape[0];
  module.inputs = spec.shape[1];
  module.rank = rank_of(config, module.name);
  module.scale = scale_of(config, module.name);
  module.dropout_key = std::uint64_t(layer) << 8 | std::uint64_t(spec.role);
  module.a_offset = elements;
  module.b_offset = module.a_offset + aligned(module.rank * module.inputs);
  elements = module.b_offset + aligned(module.outputs * module.rank);
  return module;
}

// A name that a user lists and that no linear layer has would else be trained nowhere, in silence.
void check_names(const ModelLayout& layout, const AdapterConfig& config) {
  for (const std::string& name : config.target_modules.names) {
    const auto has = [&](const TensorSpec& spec) {
      if (!is_lora_role(spec.role)) return false;
      const std::string module = module_name(spec);
      return module == name || module.ends_with("." + name);
    };
    const bool found = std::any_of(layout.layers.begin(), layout.layers.end(), [&](const BlockLayout& layer) {
      return std::any_of(layer.tensors.begin(), layer.tensors.end(), has);
    });
    if (!found)
      fail(ErrorKind::invalid_input, "target_modules: no linear layer of the decoder is named \"", name,
           "\"; there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, or \"all-linear\"");
  }
}

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  int layer;
  std::int64_t offset;
  std::size_t elements() const { return std::size_t(shape[0] * shape[1]); }
};

std::vector<NamedTensor> tensors_of(const LoraLayout& layout) {
  std::vector<NamedTensor> tensors;
  for (const LoraBlock& block : layout.layers)
    for (const LoraModule& m : block.modules) {
      const std::string name = kPeftPrefix + m.name;
      tensors.push_back({name + ".lora_A.weight", {m.rank, m.inputs}, m.layer, m.a_offset});
      tensors.push_back({name + ".lora_B.weight", {m.outputs, m.rank}, m.layer, m.b_offset});
    }
  return tensors;
}

// Calls use(tensor, its numbers) for every tensor in order, fetching each layer once.
template <class Use>
void for_each_tensor(const LoraLayout& layout, const FetchLora& fetch, const Use& use) {
  std::vector<float> values;
  int fetched = -1;
  for (const NamedTensor& tensor : tensors_of(layout)) {
    if (tensor.layer != fetched) {
      values.assign(std::size_t(layout.layers[std::size_t(tensor.layer)].elements), 0.0f);
      fetch(tensor.layer, values);
      fetched = tensor.layer;
    }
    use(tensor, std::span<const float>(values).subspan(std::size_t(tensor.offset), tensor.elements()));
  }
}

void write_tensors(const fs::path& path, const LoraLayout& layout, const FetchLora& fetch) {
  std::vector<SafetensorsWriter::Declared> declared;
  for (const NamedTensor& tensor : tensors_of(layout)) declared.push_back({tensor.name, "F32", tensor.shape});
  SafetensorsWriter writer(path, std::move(declared));
  for_each_tensor(layout, fetch, [&](const NamedTensor&, std::span<const float> values) {
    writer.write(std::as_bytes(values));
  });
  writer.close();
}

void check_written(const fs::path& path, const LoraLayout& layout, const FetchLora& fetch) {
  const SafetensorsFile file(path);
  for_each_tensor(layout, fetch, [&](const NamedTensor& tensor, std::span<const float> values) {
    const SafetensorsEntry* entry = file.find(tensor.name);
    CHECK(entry && entry->elements() > 0, path.string(), " lacks ", tensor.name, " after it was saved");
    CHECK(entry->shape == tensor.shape && entry->bytes == values.size_bytes() &&
              std::memcmp(file.bytes(*entry).data(), values.data(), values.size_bytes()) == 0,
          path.string(), ": ", tensor.name, " is not what was saved");
    file.drop(*entry);
  });
}

}  // namespace

std::int64_t LoraLayout::parameters() const {
  std::int64_t sum = 0;
  for (const LoraBlock& block : layers)
    for (const LoraModule& m : block.modules) sum += m.rank * (m.inputs + m.outputs);
  return sum;
}

LoraLayout make_lora_layout(const ModelLayout& layout, const AdapterConfig& config) {
  if (config.r < 1) fail(ErrorKind::invalid_input, "a LoRA rank must be at least 1, found ", config.r);
  if (config.target_modules.kind == ModuleChoice::Kind::none)
    fail(ErrorKind::invalid_input, "a LoRA needs target_modules: names such as q_proj, or \"all-linear\"");
  check_names(layout, config);
  LoraLayout lora{.config = config};
  bool any = false;
  for (int l = 0; l < int(layout.layers.size()); ++l) {
    LoraBlock block;
    for (const TensorSpec& spec : layout.layers[std::size_t(l)].tensors)
      if (is_lora_role(spec.role) && selects(config, module_name(spec)))
        block.modules.push_back(make_module(l, spec, config, block.elements));
    any |= !block.modules.empty();
    lora.layers.push_back(std::move(block));
  }
  if (!any)
    fail(ErrorKind::invalid_input,
         "target_modules, exclude_modules and layers_to_transform together choose no module",
         config.target_modules.kind == ModuleChoice::Kind::regex
             ? " (a single string is a regular expression for the whole path, such as \".*\\.(q|v)_proj\"; "
               "give a "
               "list to choose by name)"
             : "");
  return lora;
}

void init_lora_block(const LoraBlock& block, std::uint64_t seed, std::span<float> values) {
  CHECK(std::int64_t(values.size()) == block.elements);
  std::fill(values.begin(), values.end(), 0.0f);
  constexpr std::uint64_t kInitial = std::uint64_t(1) << 63;  // apart from the streams of dropout
  for (const LoraModule& m : block.modules) {
    const float bound = 1.0f / std::sqrt(float(m.inputs));
    float* a = values.data() + m.a_offset;
    for (std::int64_t i = 0; i < m.rank * m.inputs; ++i) {
      const PhiloxBlock bits = philox(seed, kInitial | m.dropout_key, std::uint64_t(i) / 4);
      a[i] = (2.0f * uniform_float(bits[std::size_t(i % 4)]) - 1.0f) * bound;
    }
  }
}

void bind_lora(LayerParts& parts, const BlockLayout& layer, const LoraBlock& block, void* values, DType type,
               float* gradients, std::int64_t rows) {
  parts.clear();
  const auto at = [&](std::int64_t offset) {
    return static_cast<std::byte*>(values) + std::size_t(offset) * bytes_of(type);
  };
  for (const LoraModule& m : block.modules) {
    LoraPart part{.a = Tensor(at(m.a_offset), type, {m.rank, m.inputs}),
                  .b = Tensor(at(m.b_offset), type, {m.outputs, m.rank}),
                  .scale = m.scale,
                  .row_begin = 0,
                  .row_end = rows,
                  .dropout_key = m.dropout_key};
    if (gradients) {
      part.d_a = Tensor(gradients + m.a_offset, DType::f32, {m.rank, m.inputs});
      part.d_b = Tensor(gradients + m.b_offset, DType::f32, {m.outputs, m.rank});
    }
    parts.add(layer, m.role, part);
  }
}

void write_adapter(const std::filesystem::path& folder, const LoraLayout& layout, const FetchLora& fetch) {
  write_text_atomically(folder / "adapter_config.json", adapter_config_json(layout.config));
  write_tensors(folder / "adapter_model.safetensors", layout, fetch);
  check_written(folder / "adapter_model.safetensors", layout, fetch);
}

void save_adapter(const std::filesystem::path& folder, const LoraLayout& layout, const FetchLora& fetch) {
  write_folder_atomically(folder,
                          [&](const fs::path& temporary) { write_adapter(temporary, layout, fetch); });
}

}  // namespace slideway
