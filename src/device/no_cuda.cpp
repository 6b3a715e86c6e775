#include "device/device.h"

namespace slideway {

std::unique_ptr<Device> make_cuda_device(int index) {
  fail(ErrorKind::unsupported, "CUDA device ", index,
       " was asked for, but this program was built without CUDA: configure with -DSLIDEWAY_CUDA=ON (cmake "
       "--preset "
       "cuda), or use the CPU");
}

int cuda_devices() {
  return 0;
}

}  // namespace slideway
