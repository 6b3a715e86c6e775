// CudnnAttention: attention by cuDNN 9, where it is installed and takes the shape.
//
// cuDNN is found when the program runs (dlopen), so that a program that was built for it also starts without it.
// bf16 alone; sequences lie packed one after another; the backward is cuDNN's deterministic one. Whether a shape is taken
// depends on the shape, cuDNN's version and the kind of GPU, never on timings.
//
// Owns     cuDNN's handle and a plan for each kind of shape; the workspace is the caller's
// Threads  one at a time
// Errors   device
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "ops/cuda/host_data.h"
#include "ops/ops.h"

namespace slideway {

class CudnnAttention {
 public:
  struct Call {
    Tensor out, lse, qkv;
    Heads heads;
    const Sequences& sequences;
    float scale;
    Tensor d_qkv, d_out;  // of backward
  };
  virtual ~CudnnAttention() = default;
  // False where cuDNN does not take it; nothing has been done then.
  virtual bool forward(const Call& call, HostData& host_data) = 0;
  virtual bool backward(const Call& call, HostData& host_data) = 0;
};

std::string cudnn_library();  // "cuDNN 9.19.0"; empty where it is not installed
// Null without a workspace, or where cuDNN is not installed.
std::unique_ptr<CudnnAttention> make_cudnn_attention(std::span<std::byte> workspace, cudaStream_t stream);

}  // namespace slideway
