#include "model/tensor_table.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace slideway {
namespace {

ModelLayout layout_of(const char* changes) {
  const TemporaryFolder folder;
  write_config(folder.path(), tiny_config(changes));
  return make_layout(load_config(folder.path()));
}

using Shape = std::vector<std::int64_t>;

TEST(TensorTable, ShapesProjectionsByTheHeadSizeOfTheConfig) {
  const ModelLayout layout = layout_of(R"({"num_attention_heads":3,"num_key_value_heads":1,"head_dim":4})");
  const BlockLayout& layer = layout.layers[0];
  EXPECT_EQ(layer.find(Role::q_proj)->shape, (Shape{12, 8}));
  EXPECT_EQ(layer.find(Role::k_proj)->shape, (Shape{4, 8}));
  EXPECT_EQ(layer.find(Role::v_proj)->shape, (Shape{4, 8}));
  EXPECT_EQ(layer.find(Role::o_proj)->shape, (Shape{8, 12}));
  const ModelLayout large =
      layout_of(R"({"hidden_size":4096,"num_attention_heads":48,"num_key_value_heads":8,"head_dim":128})");
  EXPECT_EQ(large.layers[0].find(Role::q_proj)->shape, (Shape{6144, 4096}));
}

TEST(TensorTable, PutsWhatOneProductServesSideBySideAndAlignsTheRest) {
  const ModelLayout layout =
      layout_of(R"({"attention_bias":true,"mlp_bias":true,"num_attention_heads":3,"head_dim":4})");
  for (const BlockLayout* block : layout.blocks()) {
    std::int64_t end = 0;
    for (const TensorSpec& spec : block->tensors) {
      const bool follows = spec.role == Role::k_proj || spec.role == Role::v_proj ||
                           spec.role == Role::up_proj || spec.role == Role::k_bias ||
                           spec.role == Role::v_bias || spec.role == Role::up_bias;
      if (follows)
        EXPECT_EQ(spec.offset, end) << spec.name;
      else
        EXPECT_EQ(spec.offset % kTensorAlign, 0) << spec.name;
      EXPECT_GE(spec.offset, end);
      end = spec.offset + spec.elements();
    }
    EXPECT_GE(block->elements, end);
    EXPECT_EQ(block->elements % kTensorAlign, 0);
  }
}

TEST(TensorTable, LetsMatricesDecayAndNothingElse) {
  const ModelLayout layout = layout_of(R"({"attention_bias":true,"mlp_bias":true})");
  for (const TensorSpec* spec : all_tensors(layout))
    EXPECT_EQ(spec->decays, spec->name.find("norm") == std::string::npos && !spec->name.ends_with(".bias"))
        << spec->name;
}

TEST(TensorTable, HasAHeadOnlyWhereItIsNotTied) {
  EXPECT_EQ(layout_of("{}").blocks().size(), 5u);
  const ModelLayout tied = layout_of(R"({"tie_word_embeddings":true})");
  EXPECT_EQ(tied.blocks().size(), 4u);
  EXPECT_EQ(tied.head.elements, 0);
  EXPECT_EQ(layout_of("{}").parameters() - tied.parameters(), 16 * 8);
}

TEST(TensorTable, ViewsATensorWithinItsBlock) {
  const ModelLayout layout = layout_of("{}");
  std::vector<float> block(std::size_t(layout.layers[1].elements));
  const TensorSpec& spec = *layout.layers[1].find(Role::up_proj);
  const Tensor tensor = view(spec, block.data(), DType::f32);
  EXPECT_EQ(tensor.f32(), block.data() + spec.offset);
  EXPECT_EQ(shape_text(tensor), "[12, 8]");
}

}  // namespace
}  // namespace slideway
