#include "train/store_files.h"

#include <vector>

#include "core/file.h"
#include "formats/safetensors.h"

namespace slideway {
namespace {

struct Place {
  int block;
  const TensorSpec* tensor;
};

std::vector<Place> places_of(const LayerStore& store) {
  std::vector<Place> places;
  for (int b = 0; b < store.count(); ++b)
    for (const TensorSpec& tensor : store.block(b).layout->tensors) places.push_back({b, &tensor});
  return places;
}

}  // namespace

void load_weights(const WeightFiles& files, LayerStore& store, Threads& threads) {
  const std::vector<Place> places = places_of(store);
  threads.for_each(std::int64_t(places.size()), [&](std::int64_t i) {
    const Place& place = places[std::size_t(i)];
    std::vector<float> values(std::size_t(place.tensor->elements()));
    files.read(*place.tensor, values);
    store.write(place.block, *place.tensor, values);
  });
}

void init_adapter(const LoraLayout& lora, std::uint64_t seed, LayerStore& adapter) {
  for (int l = 0; l < adapter.count(); ++l) {
    std::vector<float> values(std::size_t(adapter.block(l).elements));
    init_lora_block(lora.layers[std::size_t(l)], seed, values);
    for (const TensorSpec& tensor : adapter.block(l).layout->tensors)
      adapter.write(l, tensor,
                    std::span(values).subspan(std::size_t(tensor.offset), std::size_t(tensor.elements())));
  }
}

void load_adapter_weights(const fs::path& folder, LayerStore& adapter) {
  const SafetensorsFile file(folder / "adapter_model.safetensors");
  for (const Place& place : places_of(adapter)) {
    const SafetensorsEntry* entry = file.find(place.tensor->name);
    if (!entry || entry->shape != place.tensor->shape)
      fail(ErrorKind::corrupt, file.path().string(), ": ", place.tensor->name, " should be ",
           shape_text(place.tensor->shape), ", found ", entry ? shape_text(entry->shape) : "no such tensor");
    std::vector<float> values(std::size_t(entry->elements()));
    file.read_f32(*entry, values);
    adapter.write(place.block, *place.tensor, values);
  }
}

void write_model_weights(const fs::path& folder, const WeightFiles& source, const Tokenizer& tokenizer,
                         const LayerStore& store, const SaveOptions& options) {
  std::map<std::string, Place> by_name;
  for (const Place& place : places_of(store)) by_name[place.tensor->name] = place;
  SaveOptions with_tokenizer = options;
  if (source.is_gguf()) {
    with_tokenizer.extra_files.emplace_back("tokenizer.json", tokenizer.to_json());
    with_tokenizer.extra_files.emplace_back("tokenizer_config.json", tokenizer.config_json());
  }
  save_model(
      folder, source,
      [&](const TensorSpec& spec, std::span<float> out) {
        const Place& place = by_name.at(spec.name);
        store.read(place.block, *place.tensor, out);
      },
      with_tokenizer);
}

void write_adapter_weights(const fs::path& folder, const LoraLayout& lora, const LayerStore& adapter) {
  write_adapter(folder, lora, [&](int layer, std::span<float> values) {
    for (const TensorSpec& tensor : adapter.block(layer).layout->tensors)
      adapter.read(layer, tensor, values.subspan(std::size_t(tensor.offset), std::size_t(tensor.elements())));
  });
}

void publish_into(const fs::path& folder, const std::string& last,
                  const std::function<void(const fs::path&)>& write) {
  const fs::path temporary = folder / ".tmp-result";
  write_folder_atomically(temporary, write);
  fs::remove(folder / last);
  for (const auto& entry : fs::directory_iterator(temporary))
    if (entry.path().filename() != last) fs::rename(entry.path(), folder / entry.path().filename());
  fs::rename(temporary / last, folder / last);
  fs::remove_all(temporary);
}

}  // namespace slideway
