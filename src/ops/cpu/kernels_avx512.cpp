#include "ops/cpu/adamw_kernel.h"
#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/kernels.h"

namespace slideway {

const Kernels kKernelsAvx512 = {
    .attention = BY_TYPE(attention_forward),
    .attention_d_queries = BY_TYPE(attention_d_queries),
    .attention_d_keys = BY_TYPE(attention_d_keys),
    .adamw = adamw_kernel,
    .split = split_lanes,
    .join = join_lanes,
    .widen = widen_lanes,
};

}  // namespace slideway
