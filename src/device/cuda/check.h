// CUDA_CHECK: a call into CUDA succeeds or throws an Error(device) that names the call and the place.
#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace slideway {

inline void check_cuda(cudaError_t result, const char* call, const char* file, int line) {
  if (result == cudaSuccess) return;
  fail(ErrorKind::device, file, ":", line, ": ", call, ": ", cudaGetErrorName(result), ": ",
       cudaGetErrorString(result));
}

#define CUDA_CHECK(call) ::slideway::check_cuda((call), #call, __FILE__, __LINE__)

}  // namespace slideway
