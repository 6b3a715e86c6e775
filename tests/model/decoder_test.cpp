#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/golden.h"
#include "support/whole_model.h"

namespace slideway {
namespace {

// tests/golden/<family>/adapter as plain structs with room for gradients, by peft's names.
class GoldenLora {
 public:
  GoldenLora(const Golden& golden, const WeightFiles& files, std::int64_t rows)
      : file_(golden.adapter() / "adapter_model.safetensors"), layers_(files.layout().layers.size()) {
    const auto config = nlohmann::json::parse(read_text(golden.adapter() / "adapter_config.json"));
    const double r = config.at("r"), alpha = config.at("lora_alpha");
    scale_ = float(config.at("use_rslora") ? alpha / std::sqrt(r) : alpha / r);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const BlockLayout& layout = files.layout().layers[l];
      fuse(layers_[l].qkv, layout, {Role::q_proj, Role::k_proj, Role::v_proj}, rows);
      fuse(layers_[l].o, layout, {Role::o_proj}, rows);
      fuse(layers_[l].gate_up, layout, {Role::gate_proj, Role::up_proj}, rows);
      fuse(layers_[l].down, layout, {Role::down_proj}, rows);
    }
  }

  void add_to(WholeModel& model) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      Layer& layer = layers_[l];
      layer.lora = {.qkv = layer.qkv.view(),
                    .o = layer.o.view(),
                    .gate_up = layer.gate_up.view(),
                    .down = layer.down.view()};
      model.set_lora(l, &layer.lora);
    }
  }
  const std::map<std::string, std::vector<float>>& gradients() const { return gradients_; }

 private:
  struct Target {
    std::vector<LoraPart> parts;
    std::int64_t v_width = 0;
    LoraTarget view() const { return {parts, v_width}; }
  };
  struct Layer {
    Target qkv, o, gate_up, down;
    LayerLora lora;
  };

  void fuse(Target& target, const BlockLayout& layout, std::initializer_list<Role> roles, std::int64_t rows) {
    std::int64_t column = 0;
    for (const Role role : roles) {
      const TensorSpec& spec = *layout.find(role);
      const std::string name = "base_model.model." + spec.name.substr(0, spec.name.rfind('.')) + ".lora_";
      if (file_.find(name + "A.weight")) {
        LoraPart part{.scale = scale_, .row_end = rows, .out_column = column, .v_column = target.v_width};
        part.a = values(name + "A.weight", part.d_a);
        part.b = values(name + "B.weight", part.d_b);
        target.v_width += part.a.size(0);
        target.parts.push_back(part);
      }
      column += spec.shape[0];
    }
  }

  Tensor values(const std::string& name, Tensor& gradient) {
    const SafetensorsEntry& entry = *file_.find(name);
    std::vector<float>& value = values_[name] = std::vector<float>(std::size_t(entry.elements()));
    file_.read_f32(entry, value);
    gradients_[name].resize(value.size());
    gradient = Tensor(gradients_[name].data(), DType::f32, entry.shape);
    return Tensor(value.data(), DType::f32, entry.shape);
  }

  SafetensorsFile file_;
  float scale_;
  std::vector<Layer> layers_;
  std::map<std::string, std::vector<float>> values_, gradients_;
};

class DecoderOfFamily : public testing::TestWithParam<std::string> {
 protected:
  // Step 0's sequences [first, last).
  Packed rows(std::size_t first, std::size_t last) const {
    return packed(golden_.i32("ids", 0), targets_, starts_, first, last);
  }
  Packed all_rows() const { return rows(0, starts_.size() - 1); }
  float weight() const {
    return 1.0f / float(std::count_if(targets_.begin(), targets_.end(), [](int t) { return t >= 0; }));
  }

  // Every gradient that the goldens have under prefix, against what gradient(name) gives.
  template <class Gradient>
  void expect_gradients(const std::string& prefix, double bound, const Gradient& gradient) const {
    int compared = 0;
    for (const SafetensorsEntry& entry : golden_.file().entries()) {
      if (entry.name.rfind(prefix, 0) != 0) continue;
      EXPECT_LT(distance(gradient(entry.name.substr(prefix.size())), golden_.f32(entry.name)), bound)
          << entry.name;
      ++compared;
    }
    EXPECT_GT(compared, 3);
  }

  const Golden golden_{GetParam()};
  const std::unique_ptr<WeightFiles> files_ = WeightFiles::open(golden_.folder());
  const std::vector<std::int32_t> targets_ = golden_.i32("targets", 0), starts_ = golden_.i32("starts");
};

TEST_P(DecoderOfFamily, GivesTheLogitsOfTransformers) {
  WholeModel model(*files_, DType::f32);
  EXPECT_LT(distance(model.logits(all_rows()), golden_.f32("logits")), 1e-5);
}

TEST_P(DecoderOfFamily, GivesEveryGradientOfOneMicroBatch) {
  WholeModel model(*files_, DType::f32);
  const double loss = model.loss_backward(all_rows(), weight()) * weight();
  EXPECT_NEAR(loss / golden_.f32("loss")[0], 1, 1e-5);
  expect_gradients("grad.", 1e-4, [&](const std::string& name) { return model.gradient(name); });
}

TEST_P(DecoderOfFamily, GivesEveryGradientOfFourMicroBatches) {
  WholeModel model(*files_, DType::f32);
  double loss = 0;
  for (std::size_t n = 0; n < 4; ++n) loss += model.loss_backward(rows(n, n + 1), weight()) * weight();
  EXPECT_NEAR(loss / golden_.f32("loss")[0], 1, 1e-5);
  expect_gradients("grad.", 1e-4, [&](const std::string& name) { return model.gradient(name); });
}

TEST_P(DecoderOfFamily, AddsAnAdapterAsMergingItDoes) {
  WholeModel model(*files_, DType::f32, false);
  GoldenLora lora(golden_, *files_, starts_.back());
  lora.add_to(model);
  EXPECT_LT(distance(model.logits(all_rows()), golden_.f32("lora.logits")), 1e-5);
  EXPECT_GT(distance(golden_.f32("logits"), golden_.f32("lora.logits")), 1e-2);
}

TEST_P(DecoderOfFamily, GivesEveryGradientOfAnAdapterOverAFrozenBase) {
  WholeModel model(*files_, DType::f32, false);
  GoldenLora lora(golden_, *files_, starts_.back());
  lora.add_to(model);
  const double loss = model.loss_backward(all_rows(), weight()) * weight();
  EXPECT_NEAR(loss / golden_.f32("lora.loss")[0], 1, 1e-5);
  expect_gradients("lora.grad.", 1e-4, [&](const std::string& name) { return lora.gradients().at(name); });
}

// The bound of BF16: 8 bits of every weight-product's result, two layers deep.
TEST_P(DecoderOfFamily, StaysWithinItsBoundInBf16) {
  WholeModel model(*files_, DType::bf16);
  EXPECT_LT(distance(model.logits(all_rows()), golden_.f32("logits")), 2e-2);
  const double loss = model.loss_backward(all_rows(), weight()) * weight();
  EXPECT_NEAR(loss / golden_.f32("loss")[0], 1, 2e-3);
  expect_gradients("grad.", 5e-2, [&](const std::string& name) { return model.gradient(name); });
}

TEST_P(DecoderOfFamily, GivesTheSameBitsWhetherKeptOrRedone) {
  for (const DType type : {DType::f32, DType::bf16}) {
    WholeModel kept(*files_, type), redone(*files_, type);
    redone.set_redo(true);
    GoldenLora kept_lora(golden_, *files_, starts_.back()), redone_lora(golden_, *files_, starts_.back());
    kept_lora.add_to(kept);
    redone_lora.add_to(redone);
    EXPECT_EQ(kept.loss_backward(all_rows(), weight()), redone.loss_backward(all_rows(), weight()));
    for (const BlockLayout* block : files_->layout().blocks()) {
      for (const TensorSpec& spec : block->tensors)
        EXPECT_EQ(kept.gradient(spec.name), redone.gradient(spec.name))
            << spec.name << " in " << name_of(type);
    }
    EXPECT_EQ(kept_lora.gradients(), redone_lora.gradients()) << name_of(type);
  }
}

TEST_P(DecoderOfFamily, TakesTheScratchThatIsForecast) {
  for (const DType type : {DType::f32, DType::bf16}) {
    WholeModel model(*files_, type);
    model.loss_backward(all_rows(), weight());
    EXPECT_EQ(model.forward_scratch_used(), forward_scratch_bytes(files_->config(), starts_.back(), type));
    EXPECT_EQ(model.backward_scratch_used(), backward_scratch_bytes(files_->config(), starts_.back(), type));
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, DecoderOfFamily, testing::ValuesIn(kGoldenFamilies),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace slideway
