#include "train/run_device.h"

#include <algorithm>

#include "ops/ops.h"

namespace slideway {
namespace {

// Left to the driver and the libraries, which take memory of their own as they go.
constexpr std::uint64_t kDeviceMargin = std::uint64_t(512) << 20;

}  // namespace

std::unique_ptr<Device> make_device(DeviceChoice choice, std::uint64_t seed) {
  const bool automatic = choice == DeviceChoice::automatic;
  if (choice == DeviceChoice::cuda || (automatic && cuda_devices() > 0)) return make_cuda_device();
  return make_host_device({.seeded = choice == DeviceChoice::seeded, .seed = seed});
}

void describe_device(PlanInputs& inputs, Device& device, Threads& threads, std::uint64_t gpu_memory) {
  const auto stream = device.make_stream("plan");
  const auto ops = make_ops(device, *stream, threads);
  inputs.device = device.kind();
  inputs.device_copies = device.copies();
  inputs.preferred_activation = ops->preferred_activation();
  inputs.products = ops->numeric_plan();
  inputs.device_bytes = gpu_memory ? gpu_memory : Budget::kUnlimited;
  if (device.kind() == DeviceKind::cuda)
    inputs.device_bytes =
        std::min(inputs.device_bytes, device.available() - std::min(device.available(), kDeviceMargin));
}

}  // namespace slideway
