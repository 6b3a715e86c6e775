#include "train/train_bench.h"

#include <algorithm>
#include <chrono>

#include "core/machine.h"
#include "core/random.h"
#include "train/run_device.h"
#include "train/slider.h"
#include "train/step_work.h"
#include "train/store_files.h"

namespace slideway {
namespace {

// Small random weights, moments and remainders of zero, written by all threads so that every page is there.
void fill(LayerStore& store, Threads& threads) {
  constexpr std::int64_t kPiece = std::int64_t(1) << 20;
  for (int b = 0; b < store.count(); ++b) {
    const LayerStore::Block& block = store.block(b);
    threads.for_each((block.elements + kPiece - 1) / kPiece, [&](std::int64_t i) {
      std::uint64_t state = std::uint64_t(b) << 40 ^ std::uint64_t(i) ^ 0x9E3779B97F4A7C15u;
      for (std::int64_t k = i * kPiece; k < std::min(block.elements, (i + 1) * kPiece); ++k) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        block.hi[k] = to_bf16((float(state >> 40) * 0x1p-24f - 0.5f) * 0.07f);  // a deviation of 0.02
        if (block.lo) block.lo[k] = 0;
        if (block.m) block.m[k] = block.v[k] = 0;
      }
    });
    for (const TensorSpec& tensor : block.layout->tensors)
      if (tensor.shape.size() == 1 && tensor.name.find("norm") != std::string::npos)
        std::fill_n(block.hi + tensor.offset, tensor.elements(), to_bf16(1.0f));
  }
}

std::shared_ptr<const StepBatch> random_batch(const TrainBenchOptions& options, const ModelConfig& config,
                                              std::uint64_t seed) {
  auto batch = std::make_shared<StepBatch>();
  const std::int64_t samples = options.tokens / options.sequence_len;
  for (std::int64_t first = 0; first < samples; first += options.micro_batch_size) {
    MicroBatch& micro = batch->micro_batches.emplace_back();
    micro.starts.push_back(0);
    for (std::int64_t s = first; s < std::min(samples, first + options.micro_batch_size); ++s) {
      for (int t = 0; t < options.sequence_len; ++t) {
        const PhiloxBlock bits = philox(seed, std::uint64_t(s), std::uint64_t(t));
        micro.ids.push_back(std::int32_t(bits[0] % std::uint64_t(config.vocab_size)));
        micro.targets.push_back(std::int32_t(bits[1] % std::uint64_t(config.vocab_size)));
        micro.positions.push_back(t);
        micro.tokens.push_back(batch->tokens++);
      }
      micro.starts.push_back(std::int32_t(micro.ids.size()));
    }
  }
  batch->trained_tokens = batch->tokens;
  return batch;
}

}  // namespace

TrainBench::TrainBench(Device& device, Threads& threads, ModelConfig config, int lora_r)
    : device_(device), threads_(threads), config_(std::move(config)), layout_(make_layout(config_)) {
  if (lora_r > 0) {
    lora_ = std::make_unique<LoraLayout>(make_lora_layout(
        layout_, {.r = lora_r, .lora_alpha = 2.0 * lora_r, .target_modules = choose_modules("all-linear")}));
    lora_blocks_ = lora_block_layouts(*lora_);
    adapter_ = std::make_unique<LayerStore>(device_, block_pointers(lora_blocks_), LayerStoreOptions{});
    init_adapter(*lora_, 1, *adapter_);
  }
  base_ = std::make_unique<LayerStore>(device_, layout_.blocks(), LayerStoreOptions{.trained = !lora_});
  fill(*base_, threads_);
}

TrainBench::~TrainBench() = default;

TrainPlan TrainBench::make_plan(const TrainBenchOptions& o) const {
  TrainOptions options{
      .adapter = lora_ ? AdapterKind::lora : AdapterKind::none,
      .sequence_len = o.sequence_len,
      .micro_batch_size = int(std::min<std::int64_t>(o.micro_batch_size, o.tokens / o.sequence_len)),
      .max_grad_norm = o.max_grad_norm};
  options.gradient_accumulation_steps = int(o.tokens / o.sequence_len / options.micro_batch_size);
  PlanInputs inputs{.config = &config_,
                    .layout = &layout_,
                    .lora = lora_.get(),
                    .micro_batch_rows = std::int64_t(options.micro_batch_size) * o.sequence_len,
                    .process_bytes = std::uint64_t(1) << 30};
  describe_device(inputs, device_, threads_, o.gpu_memory);
  return make_train_plan(options, inputs);
}

TrainBenchResult TrainBench::run(const TrainBenchOptions& options, const MeasuredRates& rates) {
  TrainBenchResult out{.plan = make_plan(options)};
  out.work = step_work(config_, layout_, out.plan, lora_.get(), options.max_grad_norm, double(options.tokens),
                       double(options.sequence_len));
  out.forecast = forecast_step(out.work, rates.machine);
  const std::uint64_t before = device_.available();
  Slider slider({.config = config_,
                 .layout = layout_,
                 .plan = out.plan,
                 .device = device_,
                 .threads = threads_,
                 .base = *base_,
                 .lora = lora_.get(),
                 .adapter = adapter_.get(),
                 .optimizer = {.max_grad_norm = options.max_grad_norm}});
  out.device_bytes = before - device_.available();
  const auto note = [&](const std::string& text) {
    if (options.on_note) options.on_note(text);
  };
  note("buffers taken");
  const std::shared_ptr<const StepBatch> batches[2] = {random_batch(options, config_, 1),
                                                       random_batch(options, config_, 2)};
  const int all = options.warm_steps + options.steps;
  std::chrono::steady_clock::time_point begin, end;
  int launched = 0;
  for (int done = 0; done < all; ++done) {
    while (launched < std::min(all, done + 2)) slider.launch(batches[launched++ % 2], 1e-6);
    const StepResult result = *slider.wait();
    if (done + 1 == options.warm_steps) begin = result.known_at;
    end = result.known_at;
    out.loss = result.loss;
    note("step " + std::to_string(done + 1) + ", loss " + std::to_string(result.loss));
  }
  // From step to step, not from launch to launch: launching waits when there is too much to do.
  out.step_s = std::chrono::duration<double>(end - begin).count() / options.steps;
  slider.flush();
  return out;
}

}  // namespace slideway
