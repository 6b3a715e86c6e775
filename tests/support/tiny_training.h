// A tiny random model trained for a few steps, on any device and under any plan: what equivalence tests compare.
#pragma once

#include <cstring>
#include <memory>
#include <ostream>
#include <vector>

#include "core/random.h"
#include "train/slider.h"

namespace slideway {

// What a run leaves: everything that must not change by a bit.
struct TinyResult {
  std::vector<double> losses, norms;
  std::vector<float> weights;  // of everything that was trained
  bool operator==(const TinyResult& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(losses, other.losses) && same(norms, other.norms) && same(weights, other.weights);
  }
};

// Where two results first differ, for a failing test.
inline void PrintTo(const TinyResult& result, std::ostream* out) {
  *out << "losses";
  for (const double loss : result.losses) *out << ' ' << std::hexfloat << loss;
  *out << ", norms";
  for (const double norm : result.norms) *out << ' ' << norm;
  double sum = 0;
  for (const float weight : result.weights) sum += weight;
  *out << ", sum of weights " << sum << std::defaultfloat;
}

struct TinyOptions {
  bool cuda = false;  // on the GPU, which must be there
  HostDeviceOptions device;
  int layers = 5;
  bool tied = true;
  bool qk_norm = false;
  bool qkv_bias = false;
  bool lora = false;
  double lora_dropout = 0;
  double max_grad_norm = 1.0;
  int micro_batches = 2;
  int slots = 2;
  int kept_layers = 5;
  bool one_pass = true;
  int threads = 1;
  int steps = 3;
  Precision precision{DType::bf16, DType::f32, DType::bf16};
};

inline ModelConfig tiny_config(const TinyOptions& options) {
  ModelConfig config;
  config.family = options.qk_norm ? "qwen3" : options.qkv_bias ? "qwen2" : "llama";
  config.vocab_size = 101;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.tie_word_embeddings = options.tied;
  config.qk_norm = options.qk_norm;
  config.qkv_bias = options.qkv_bias;
  config.max_position_embeddings = 64;
  config.ropes = {{.inv_freq = {1.0f, 0.1f, 0.01f, 0.001f}}};
  config.layers.resize(std::size_t(options.layers));
  return config;
}

// Samples of different lengths, the same for every cut into micro-batches.
inline StepBatch tiny_batch(int micro_batches, int step) {
  StepBatch batch;
  constexpr int kSamples = 4;
  std::int64_t token = 0;
  for (int m = 0; m < micro_batches; ++m) {
    MicroBatch micro;
    micro.starts.push_back(0);
    for (int s = m * kSamples / micro_batches; s < (m + 1) * kSamples / micro_batches; ++s) {
      const int length = 5 + 3 * s;
      for (int t = 0; t < length; ++t) {
        const PhiloxBlock bits = philox(std::uint64_t(step), std::uint64_t(s), std::uint64_t(t));
        micro.ids.push_back(std::int32_t(bits[0] % 101));
        const bool trained = t + 1 < length && bits[1] % 4 != 0;
        micro.targets.push_back(trained ? std::int32_t(bits[2] % 101) : -1);
        micro.positions.push_back(t);
        micro.tokens.push_back(token++);
        batch.trained_tokens += trained;
      }
      micro.starts.push_back(std::int32_t(micro.ids.size()));
    }
    batch.tokens += std::int64_t(micro.ids.size());
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

inline void fill_random(LayerStore& store, float scale) {
  for (int b = 0; b < store.count(); ++b)
    for (const TensorSpec& tensor : store.block(b).layout->tensors) {
      std::vector<float> values(std::size_t(tensor.elements()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const PhiloxBlock bits = philox(7, std::uint64_t(b) * 1000 + std::uint64_t(tensor.offset), i);
        values[i] = (2 * uniform_float(bits[0]) - 1) * scale +
                    (tensor.shape.size() == 1 && !tensor.decays ? 0.5f : 0.0f);
      }
      store.write(b, tensor, values);
    }
}

inline TinyResult train_tiny(const TinyOptions& options) {
  const ModelConfig config = tiny_config(options);
  const ModelLayout layout = make_layout(config);
  const auto device = options.cuda ? make_cuda_device() : make_host_device(options.device);
  Threads threads(options.threads);

  std::unique_ptr<LoraLayout> lora;
  std::vector<BlockLayout> lora_blocks;
  if (options.lora) {
    lora = std::make_unique<LoraLayout>(
        make_lora_layout(layout, {.r = 3, .lora_alpha = 6, .target_modules = choose_modules("all-linear")}));
    lora_blocks = lora_block_layouts(*lora);
  }
  TrainOptions chosen;
  chosen.micro_batch_size = 4 / options.micro_batches;
  chosen.gradient_accumulation_steps = options.micro_batches;
  chosen.max_grad_norm = options.max_grad_norm;
  chosen.slots = options.slots;
  std::int64_t rows = 0;
  for (const MicroBatch& micro : tiny_batch(options.micro_batches, 0).micro_batches)
    rows = std::max(rows, std::int64_t(micro.ids.size()));
  TrainPlan plan = make_train_plan(chosen, {.config = &config,
                                            .layout = &layout,
                                            .lora = lora.get(),
                                            .micro_batch_rows = rows,
                                            .device = device->kind(),
                                            .device_copies = device->copies()});
  plan.numeric.precision = options.precision;
  plan.numeric.head_token_tile = 8;
  plan.numeric.head_vocab_tile = 32;
  plan.kept_layers = options.kept_layers;
  plan.head_in_one_pass = options.one_pass;
  if (options.precision.activations == DType::f32) CHECK(plan.saved_bytes > 0);

  const bool exact = options.precision.weights == DType::f32;
  LayerStore base(*device, layout.blocks(), {.trained = !options.lora, .exact = exact});
  fill_random(base, 0.2f);
  std::unique_ptr<LayerStore> adapter;
  if (lora) {
    adapter = std::make_unique<LayerStore>(*device, block_pointers(lora_blocks), LayerStoreOptions{});
    fill_random(*adapter, 0.1f);
  }
  TinyResult result;
  std::vector<std::shared_ptr<const StepBatch>> batches;  // alive to the end, also where a wait was left out
  {
    Slider slider({.config = config,
                   .layout = layout,
                   .plan = plan,
                   .device = *device,
                   .threads = threads,
                   .base = base,
                   .lora = lora.get(),
                   .adapter = adapter.get(),
                   .optimizer = {.weight_decay = 0.1, .max_grad_norm = options.max_grad_norm},
                   .lora_dropout = options.lora_dropout,
                   .seed = 11});
    const auto collect = [&](const std::optional<StepResult>& step) {
      result.losses.push_back(step->loss);
      result.norms.push_back(step->grad_norm);
    };
    // One step ahead, as on a device of its own.
    for (int step = 0; step < options.steps; ++step) {
      batches.push_back(std::make_shared<const StepBatch>(tiny_batch(options.micro_batches, step)));
      slider.launch(batches.back(), 1e-2);
      if (step > 0) collect(slider.wait());
    }
    collect(slider.wait());
    slider.flush();
  }
  const LayerStore& trained = lora ? *adapter : base;
  for (int b = 0; b < trained.count(); ++b)
    for (const TensorSpec& tensor : trained.block(b).layout->tensors) {
      std::vector<float> values(std::size_t(tensor.elements()));
      trained.read(b, tensor, values);
      result.weights.insert(result.weights.end(), values.begin(), values.end());
    }
  return result;
}

}  // namespace slideway
