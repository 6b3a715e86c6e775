// The CUDA backend of a program that was built without CUDA. There is no CUDA device either, so nothing comes here.
#include "ops/cuda_backend.h"

namespace slideway {

std::unique_ptr<Ops> make_cuda_ops(Device&, Stream&, const OpsOptions&) {
  fail(ErrorKind::unsupported, "this program was built without CUDA");
}

}  // namespace slideway
