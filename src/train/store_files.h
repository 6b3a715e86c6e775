// Between stores and files: weights into a LayerStore, and out of it into the folders that other tools read.
//
// Threads  one at a time; loading reads several tensors side by side
// Errors   those of reading and writing
#pragma once

#include <filesystem>
#include <functional>

#include "core/threads.h"
#include "lora/lora_layout.h"
#include "model/weights.h"
#include "text/tokenizer.h"
#include "train/layer_store.h"

namespace slideway {

// Every tensor of files into the store whose blocks are the layout's.
void load_weights(const WeightFiles& files, LayerStore& store, Threads& threads);

// A new adapter's values: A random, B zero.
void init_adapter(const LoraLayout& lora, std::uint64_t seed, LayerStore& adapter);
// The values that write_adapter_weights wrote.
void load_adapter_weights(const std::filesystem::path& folder, LayerStore& adapter);

// The files of a Hugging Face folder, or of a PEFT adapter, into a folder that exists.
void write_model_weights(const std::filesystem::path& folder, const WeightFiles& source,
                         const Tokenizer& tokenizer, const LayerStore& store, const SaveOptions& options);
void write_adapter_weights(const std::filesystem::path& folder, const LoraLayout& lora,
                           const LayerStore& adapter);

// Puts the files that write makes into folder, among others that are there. `last` disappears first and appears last,
// so that a reader who finds it finds all the others.
void publish_into(const std::filesystem::path& folder, const std::string& last,
                  const std::function<void(const std::filesystem::path&)>& write);

}  // namespace slideway
