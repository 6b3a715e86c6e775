// What the CUDA backend gives to make_ops. Where CUDA is not built, no_cuda_ops.cpp stands in its place and throws.
#pragma once

#include "ops/ops.h"

namespace slideway {

std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const OpsOptions& options);

}  // namespace slideway
