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

// The logits of all of step 0's sequences served side by side from pages of 4 tokens, `chunk` tokens of each a step.
std::vector<float> served(WholeModel& model, const WeightFiles& files, std::span<const std::int32_t> ids,
                          std::span<const std::int32_t> starts, std::int32_t chunk) {
  const ModelConfig& config = files.config();
  const std::int64_t V = config.vocab_size, D = config.hidden_size, N = std::int64_t(starts.size()) - 1;
  constexpr int kTokens = 4, kMaxPages = 5;
  const std::size_t page_bytes = std::size_t(2 * kTokens * config.num_key_value_heads * config.head_dim) * 4;
  const Buffer pool = model.device().allocate(page_bytes * std::size_t(config.num_layers() * N) * kMaxPages);
  std::vector<float> logits(std::size_t(starts.back() * V));
  for (std::int32_t done = 0; done < 16; done += chunk) {
    std::vector<std::int32_t> step_ids, positions, step_starts = {0}, lengths, rows;
    for (std::size_t n = 0; n < std::size_t(N); ++n) {
      const std::int32_t length = starts[n + 1] - starts[n], end = std::min(done + chunk, length);
      for (std::int32_t t = done; t < end; ++t) {
        rows.push_back(starts[n] + t);
        step_ids.push_back(ids[std::size_t(starts[n] + t)]);
        positions.push_back(t);
      }
      step_starts.push_back(std::int32_t(rows.size()));
      lengths.push_back(end);
    }
    const std::int64_t T = std::int64_t(rows.size());
    Buffer memory = model.device().allocate(1 << 20);
    Arena arena(memory.span());
    const Tensor x = arena.take("x", DType::f32, {T, D}), z = arena.take("z", DType::f32, {T, V});
    const Tensor rstd = arena.take("rstd", DType::f32, {T}),
                 step_positions(positions.data(), DType::i32, {T});
    model.embed(x, Tensor(step_ids.data(), DType::i32, {T}));
    for (std::int64_t l = 0; l < config.num_layers(); ++l) {
      const Arena::Frame frame(arena);
      std::vector<std::int32_t> pages;
      for (std::int64_t page = 0; page < N * kMaxPages; ++page)
        pages.push_back(std::int32_t((page * 7 % (N * kMaxPages)) * config.num_layers() + l));
      const PagedKv kv{.pool = pool.data(),
                       .page_bytes = page_bytes,
                       .page_tokens = kTokens,
                       .pages = pages,
                       .max_pages = kMaxPages,
                       .starts = step_starts,
                       .lengths = lengths};
      LayerSaved saved = take_saved(arena, config, T, DType::f32, nullptr, x);
      model.decoder().forward(int(l), model.layer_weights_of(std::size_t(l)),
                              {.positions = step_positions, .kv = &kv}, model.inv_freq(std::size_t(l)), saved,
                              x, nullptr, arena);
    }
    model.head(z, x, rstd, x);
    model.stream().synchronize();
    for (std::size_t t = 0; t < rows.size(); ++t)
      std::copy_n(z.f32() + std::int64_t(t) * V, V, logits.begin() + rows[t] * V);
  }
  return logits;
}

TEST_P(DecoderOfFamily, ServesTheLogitsOfTransformersFromPagesWithTheSameBitsInAnyChunks) {
  WholeModel model(*files_, DType::f32, false, {.row_invariant = true});
  const std::vector<std::int32_t> ids = golden_.i32("ids", 0);
  const std::vector<float> whole = served(model, *files_, ids, starts_, 16);
  EXPECT_LT(distance(whole, golden_.f32("logits")), 1e-5);
  for (const std::int32_t chunk : {1, 3, 7})
    EXPECT_EQ(served(model, *files_, ids, starts_, chunk), whole) << chunk;
}

INSTANTIATE_TEST_SUITE_P(Goldens, DecoderOfFamily, testing::ValuesIn(kGoldenFamilies),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace slideway
