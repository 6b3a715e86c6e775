// What a plan counts for the CUDA ops, known without a GPU.
#include "ops/cuda_workspace.h"

#include <gtest/gtest.h>

namespace slideway {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t(1) << 20;

OpsOptions options_8b(std::int64_t rows) {
  return {.rows = rows, .heads = {32, 8, 128}};
}

TEST(CudaWorkspace, IsSmallForOpsThatAreOnlyAsked) {
  EXPECT_LE(ops_workspace_bytes(DeviceKind::cuda, {}), 64 * kMiB);
  EXPECT_EQ(ops_workspace_bytes(DeviceKind::host, options_8b(8192)), 0u);
}

TEST(CudaWorkspace, HoldsTheBackwardOfOneSequenceUntilItIsTooLong) {
  // 32 heads of 4,096 × 4,096 gradients of scores, two bytes each, are 1 GiB; what cuDNN asks for on top is little.
  const std::uint64_t one = cudnn_backward_bytes(1, 4096, 32, 128);
  EXPECT_GE(one, 1024 * kMiB);
  EXPECT_LE(one, kMostCudnnBackward);
  EXPECT_GE(workspace_sizes(options_8b(4096)).attention, one);
  EXPECT_LE(workspace_sizes(options_8b(65536)).attention, kMostCudnnBackward + 64 * kMiB);
  OpsOptions own = options_8b(4096);
  own.library_attention = false;
  EXPECT_EQ(workspace_sizes(own).attention, 0u);
}

TEST(CudaWorkspace, RoundsSizesUpToFewPlans) {
  for (const auto& [n, size] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                {2, 2},
                                {3, 3},
                                {4, 4},
                                {5, 6},
                                {7, 8},
                                {97, 128},
                                {96, 96},
                                {4096, 4096},
                                {4097, 6144}})
    EXPECT_EQ(cudnn_size(n), size) << n;
}

TEST(CudaWorkspace, OfLoraHoldsAnyTargetThatIsNoLargerThanWasSaid) {
  OpsOptions options = options_8b(8192);
  EXPECT_EQ(workspace_sizes(options).lora, 0u);
  options.lora_inputs = 14336;
  options.lora_outputs = 28672;
  options.lora_rank = 112;
  const std::uint64_t room = workspace_sizes(options).lora;
  for (const std::int64_t rows : {64, 5000, 8192}) {
    for (const std::int64_t C : {4096, 14336}) {
      for (const std::int64_t N : {1024, 28672}) {
        for (const std::int64_t S : {16, 48, 112}) EXPECT_LE(LoraRoomSizes(rows, C, N, S).total(), room);
      }
    }
  }
}

}  // namespace
}  // namespace slideway
