// Scratch: memory of the calling thread for the tiles it works on. It grows to the largest need, then stays: nothing is
// allocated in the steady state. Each use has its own slot, since products run inside attention.
#pragma once

#include <cstddef>

namespace slideway {

enum class ScratchSlot {
  library,
  product,
  sums,
  bias,
  attention,
  paged,
  paged_partials,
  lora,
  lora_product,
  count
};

// At least bytes bytes, aligned to 64, undefined content; valid until this thread's next call for the same slot.
void* thread_scratch(ScratchSlot slot, std::size_t bytes);

inline float* scratch_floats(ScratchSlot slot, std::size_t n) {
  return static_cast<float*>(thread_scratch(slot, n * sizeof(float)));
}

}  // namespace slideway
