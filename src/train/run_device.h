// The device of a training run: which one a choice means, and what a plan is told about it.
//
// Errors   unsupported, device: a GPU was asked for, and none can be used
#pragma once

#include <cstdint>
#include <memory>

#include "core/threads.h"
#include "device/device.h"
#include "train/train_plan.h"

namespace slideway {

// seed: of the seeded device's orders.
std::unique_ptr<Device> make_device(DeviceChoice choice, std::uint64_t seed = 0);

// Fills in what inputs say of the device. gpu_memory: the user's limit of its bytes; 0: what it has.
void describe_device(PlanInputs& inputs, Device& device, Threads& threads, std::uint64_t gpu_memory);

}  // namespace slideway
