#include "ops/cpu/adamw_kernel.h"
#include "ops/cpu/kernels.h"

namespace slideway {

const Kernels kKernelsAvx2 = {
    .adamw = adamw_kernel,
    .split = split_lanes,
    .join = join_lanes,
    .widen = widen_lanes,
};

}  // namespace slideway
