// Ten steps of the real engine against ten steps of PyTorch: losses and gradient norms of every family.
#include "support/golden.h"

#include <gtest/gtest.h>

#include "support/whole_model.h"
#include "train/slider.h"
#include "train/store_files.h"

namespace slideway {
namespace {

struct Case {
  std::string family;
  bool lora = false, clips = false;
  int micro_batches = 1;
};

std::string name_of(const Case& c) {
  return c.family + (c.lora ? "_lora" : "_full") + (c.clips ? "_clipped" : "") + "_" +
         std::to_string(c.micro_batches);
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const std::string& family : kGoldenFamilies) {
    for (const bool lora : {false, true}) {
      for (const bool clips : {false, true}) {
        for (const int micro_batches : {1, 4}) all.push_back({family, lora, clips, micro_batches});
      }
    }
  }
  return all;
}

StepBatch golden_batch(const Golden& golden, std::int64_t step, int micro_batches) {
  StepBatch batch;
  const std::vector<std::int32_t> ids = golden.i32("ids", step), targets = golden.i32("targets", step);
  const std::vector<std::int32_t> starts = golden.i32("starts");
  const std::size_t each = (starts.size() - 1) / std::size_t(micro_batches);
  for (std::size_t n = 0; n + 1 < starts.size(); n += each) {
    const Packed rows = packed(ids, targets, starts, n, n + each);
    MicroBatch micro{
        .ids = rows.ids, .targets = rows.targets, .positions = rows.positions, .starts = rows.starts};
    for (const std::int32_t target : rows.targets) {
      micro.tokens.push_back(batch.tokens++);
      batch.trained_tokens += target >= 0;
    }
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

// A golden model in the real stores, trained by the real slider as tools/make_goldens.py trains it.
class GoldenRun {
 public:
  GoldenRun(const Case& c, const TrainOptions& wanted, const HostDeviceOptions& device = {})
      : golden_(c.family), files_(WeightFiles::open(golden_.folder())), device_(make_host_device(device)) {
    TrainOptions options = wanted;
    options.weight_decay = 0.1;
    options.max_grad_norm = c.clips ? 1.0 : 0.0;
    options.micro_batch_size = 4 / c.micro_batches;
    options.gradient_accumulation_steps = c.micro_batches;
    if (c.lora) {
      lora_ = make_lora_layout(files_->layout(), load_adapter_config(golden_.adapter()));
      lora_blocks_ = lora_block_layouts(*lora_);
    }
    for (std::int64_t step = 0; step < 10; ++step) {
      batches_.push_back(std::make_shared<const StepBatch>(golden_batch(golden_, step, c.micro_batches)));
    }
    std::int64_t rows = 0;
    for (const MicroBatch& micro : batches_[0]->micro_batches)
      rows = std::max(rows, std::int64_t(micro.ids.size()));
    plan_ = make_train_plan(options, {.config = &files_->config(),
                                      .layout = &files_->layout(),
                                      .lora = lora_ ? &*lora_ : nullptr,
                                      .micro_batch_rows = rows,
                                      .device = device_->kind(),
                                      .device_copies = device_->copies(),
                                      .preferred_activation = DType::bf16});
    const bool exact = plan_.numeric.precision.weights == DType::f32;
    base_ = std::make_unique<LayerStore>(*device_, files_->layout().blocks(),
                                         LayerStoreOptions{.trained = !c.lora, .exact = exact});
    load_weights(*files_, *base_, threads_);
    if (c.lora) load_adapter();
    slider_ = std::make_unique<Slider>(SliderParts{
        .config = files_->config(),
        .layout = files_->layout(),
        .plan = plan_,
        .device = *device_,
        .threads = threads_,
        .base = *base_,
        .lora = lora_ ? &*lora_ : nullptr,
        .adapter = adapter_.get(),
        .optimizer = {.weight_decay = options.weight_decay, .max_grad_norm = options.max_grad_norm}});
  }

  // Losses and norms of ten steps.
  std::pair<std::vector<float>, std::vector<float>> train() {
    std::pair<std::vector<float>, std::vector<float>> out;
    for (const auto& batch : batches_) {
      slider_->launch(batch, 1e-3);
      const StepResult result = *slider_->wait();
      out.first.push_back(float(result.loss));
      out.second.push_back(float(result.grad_norm));
    }
    slider_->flush();
    return out;
  }
  const Golden& golden() const { return golden_; }

 private:
  void load_adapter() {
    adapter_ = std::make_unique<LayerStore>(*device_, block_pointers(lora_blocks_), LayerStoreOptions{});
    load_adapter_weights(golden_.adapter(), *adapter_);
  }

  Golden golden_;
  std::unique_ptr<WeightFiles> files_;
  std::optional<LoraLayout> lora_;
  std::vector<BlockLayout> lora_blocks_;
  std::vector<std::shared_ptr<const StepBatch>> batches_;
  Threads threads_;
  std::unique_ptr<Device> device_;
  TrainPlan plan_;
  std::unique_ptr<LayerStore> base_, adapter_;
  std::unique_ptr<Slider> slider_;
};

double most_off(const std::vector<float>& found, const std::vector<float>& wanted) {
  double most = found.size() == wanted.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double off = std::abs(double(found[i]) / wanted[i] - 1);
    most = off >= 0 ? std::max(most, off) : INFINITY;
  }
  return most;
}

class TenSteps : public testing::TestWithParam<Case> {
 protected:
  void expect_pytorch(const TrainOptions& options, double loss_bound, double norm_bound,
                      const HostDeviceOptions& device = {}) const {
    GoldenRun run(GetParam(), options, device);
    const auto [losses, norms] = run.train();
    const std::string kind =
        std::string(GetParam().lora ? "lora." : "") + (GetParam().clips ? "clipped." : "");
    EXPECT_LT(most_off(losses, run.golden().f32(kind + "losses")), loss_bound);
    EXPECT_LT(most_off(norms, run.golden().f32(kind + "norms")), norm_bound);
  }
};

TEST_P(TenSteps, AreThoseOfPyTorchInFp32) {
  TrainOptions options;
  options.compute = ComputeType::fp32;
  expect_pytorch(options, 1e-5, 1e-4);
}

TEST_P(TenSteps, AreThoseOfPyTorchInFp32SlidThroughTwoSlotsAndRecomputed) {
  TrainOptions options;
  options.compute = ComputeType::fp32;
  options.activations = ActivationPolicy::recompute;
  options.slots = 2;
  expect_pytorch(options, 1e-5, 1e-4, {.seeded = true, .seed = 7});
}

// BF16's own bound: products of 8 bits, two layers deep, and weights that are rounded anew after each update.
TEST_P(TenSteps, StayWithinTheirBoundInBf16) {
  expect_pytorch({}, 5e-3, 5e-2);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TenSteps, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace slideway
