#include "lora/merge.h"

#include <gtest/gtest.h>

#include "lora/small_model.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

TEST(Merge, AddsTheScaledProductToTheWeight) {
  const TemporaryFolder folder;
  const ModelConfig config = small_config();
  const ModelLayout layout = make_layout(config);
  write_adapter(folder.path(),
                R"({"peft_type":"LORA","r":2,"lora_alpha":6,"target_modules":["layers.1.mlp.up_proj"]})",
                module_tensors("model.layers.1.mlp.up_proj", 12, 8, 2, "BF16"));
  const Adapter adapter = load_adapter(folder.path(), layout);
  const AdapterModule& m = adapter.modules()[0];
  Threads threads(2);
  std::vector<float> weight(12 * 8, 1.0f), other(weight);
  merge_adapter(adapter, *layout.layers[1].find(Role::up_proj), weight, threads);
  merge_adapter(adapter, *layout.layers[0].find(Role::up_proj), other, threads);
  for (std::int64_t n = 0; n < 12; ++n)
    for (std::int64_t c = 0; c < 8; ++c) {
      double wanted = 1;
      for (std::int64_t r = 0; r < 2; ++r)
        wanted += 3.0 * to_float(m.b.bf16()[n * 2 + r]) * to_float(m.a.bf16()[r * 8 + c]);
      EXPECT_FLOAT_EQ(weight[std::size_t(n * 8 + c)], float(wanted));
      EXPECT_EQ(other[std::size_t(n * 8 + c)], 1.0f) << "another layer";
    }
}

}  // namespace
}  // namespace slideway
