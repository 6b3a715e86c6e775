#include "ops/cpu/adamw_kernel.h"
#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/dense_kernel.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/lora_kernel.h"
#include "ops/cpu/paged_kernel.h"
#include "ops/cpu/row_products_kernel.h"

namespace slideway {

const Kernels kKernelsAvx512 = {
    .attention = BY_TYPE(attention_forward),
    .attention_d_queries = BY_TYPE(attention_d_queries),
    .attention_d_keys = BY_TYPE(attention_d_keys),
    .paged_span = paged_span,
    .paged_join = paged_join,
    .paged_rows = paged_rows,
    .row_products = row_products_kernel,
    .dropout_factors = dropout_factors,
    .scale_patch = scale_patch,
    .add_patch = add_patch,
    .dense = dense_tile,
    .adamw = adamw_kernel,
    .split = split_lanes,
    .join = join_lanes,
    .widen = widen_lanes,
};

}  // namespace slideway
