#include <algorithm>

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/scratch.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

// Runs kernel on every tile of size rows, of every sequence and key-value head. Late queries see the most keys and
// early keys are seen by the most queries: late_first says which end takes longest, and so goes first.
void for_tiles(Threads& threads, const Sequences& sequences, AttentionTile call, std::int64_t size,
               bool late_first, void (*kernel)(const AttentionTile&)) {
  const auto starts = sequences.starts;
  const std::size_t count = starts.size() - 1;
  std::int64_t tiles = 0;  // a key-value head
  for (std::size_t n = 0; n < count; ++n) tiles += pieces_of(starts[n + 1] - starts[n], size);
  const std::int64_t floats = attention_scratch(call.heads / call.kv_heads, call.width);
  threads.for_each(tiles * call.kv_heads, [&](std::int64_t piece) {
    AttentionTile tile = call;
    tile.kv_head = piece % call.kv_heads;
    std::int64_t index = piece / call.kv_heads;
    if (late_first) index = tiles - 1 - index;
    std::size_t n = 0;
    for (; index >= pieces_of(starts[n + 1] - starts[n], size); ++n)
      index -= pieces_of(starts[n + 1] - starts[n], size);
    tile.begin = starts[n];
    tile.end = starts[n + 1];
    tile.first = tile.begin + index * size;
    tile.scratch = scratch_floats(ScratchSlot::attention, std::size_t(floats));
    kernel(tile);
  });
}

AttentionTile call_of(const Tensor& qkv, const Tensor& out, const Tensor& lse, const Heads& heads,
                      const Sequences& sequences, float scale) {
  AttentionTile call{};
  call.type = qkv.dtype();
  call.qkv = qkv.data();
  call.out = out.data();
  call.lse = lse.f32();
  call.rows = qkv.size(0);
  call.heads = heads.query;
  call.kv_heads = heads.key_value;
  call.width = heads.width;
  call.window = sequences.window;
  call.scale = scale;
  return call;
}

}  // namespace

void CpuOps::attention(Tensor out, Tensor lse, Tensor qkv, Heads heads, const Sequences& sequences,
                       float scale) {
  shapes::attention(out, lse, qkv, heads, sequences);
  stream_.run([=, this] {
    const AttentionTile call = call_of(qkv, out, lse, heads, sequences, scale);
    const Kernels& level = kernels(best_cpu_level());
    for_tiles(threads_, sequences, call, query_tile(heads.query / heads.key_value), true, level.attention);
  });
}

void CpuOps::attention_backward(Tensor d_qkv, Tensor d_out, Tensor out, Tensor lse, Tensor qkv, Heads heads,
                                const Sequences& sequences, float scale) {
  shapes::attention_backward(d_qkv, d_out, out, lse, qkv, heads, sequences);
  stream_.run([=, this] {
    AttentionTile call = call_of(qkv, out, lse, heads, sequences, scale);
    call.d_out = d_out.data();
    call.d_qkv = d_qkv.data();
    const Kernels& level = kernels(best_cpu_level());
    for_tiles(threads_, sequences, call, query_tile(heads.query / heads.key_value), true,
              level.attention_d_queries);
    for_tiles(threads_, sequences, call, kKeyTile, false, level.attention_d_keys);
  });
}

}  // namespace slideway
