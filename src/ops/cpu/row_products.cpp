#include "ops/cpu/row_products.h"

#include <algorithm>

#include "ops/cpu/kernels.h"

namespace slideway {

void row_linear(Threads& threads, Tensor out, Tensor x, Tensor w, Tensor bias, CpuLevel level) {
  const std::int64_t outputs = w.size(0), inputs = w.size(1);
  const RowProducts products{.x = x.data(),
                             .x_type = x.dtype(),
                             .x_stride = inputs,
                             .w = w.data(),
                             .w_type = w.dtype(),
                             .bias = bias.data(),
                             .bias_type = bias.dtype(),
                             .out = out.data(),
                             .out_type = out.dtype(),
                             .out_stride = outputs,
                             .rows = x.elements() / inputs,
                             .inputs = inputs};
  // Each output stands alone, so pieces may follow the number of threads: long ones, since a piece begins with cold weights
  // that nobody has asked for, yet a few a thread, and none so long that one thread is waited for.
  constexpr std::int64_t kMostBytes = 512 << 10;
  const std::int64_t share = outputs / (4 * threads.count());
  const std::int64_t most = kMostBytes / (std::int64_t(bytes_of(w.dtype())) * inputs);
  const std::int64_t piece = std::max<std::int64_t>(std::min(share, most) / 8, 1) * 8;
  const auto& kernel = kernels(level).row_products;
  threads.for_each((outputs + piece - 1) / piece,
                   [&](std::int64_t i) { kernel(products, i * piece, std::min(outputs, (i + 1) * piece)); });
}

}  // namespace slideway
