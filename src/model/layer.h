// The tensors of one decoder layer: its weights, what its forward leaves for backward, and its temporaries.
//
// Letters as in ops/ops.h. "act" is the activation type of the run.
#pragma once

#include <cstdint>

#include "memory/arena.h"
#include "model/config.h"
#include "model/tensor_table.h"
#include "ops/ops.h"

namespace slideway {

// A layer's weights as views into its block; also their gradients (f32). Tensors that the model lacks are
// empty.
struct LayerWeights {
  Tensor input_norm;             // [D]
  Tensor qkv, qkv_bias;          // [(H+2K)E, D], [(H+2K)E]
  Tensor q_norm, k_norm;         // [E]
  Tensor o, o_bias;              // [D, H E], [D]
  Tensor post_attention_norm;    // [D]
  Tensor gate_up, gate_up_bias;  // [2F, D], [2F]
  Tensor down, down_bias;        // [D, F], [D]
};
LayerWeights layer_weights(const BlockLayout& layout, void* block, DType type);

// Additions of adapters to a layer's four fused projections.
struct LayerLora {
  LoraTarget qkv, o, gate_up, down;
  Dropout dropout;  // each part has its own key
};

// What backward needs of a layer's forward: its input, and whatever costs a product to redo. Norm outputs,
// head_norm and swiglu are redone. Taken from an arena that outlives the layer's forward.
struct LayerSaved {
  Tensor x;          // [T, D] act: the layer's input
  Tensor qkv;        // [T, (H+2K)E] act: after rope; where heads are normed, before head_norm
  Tensor attention;  // [T, H E] act
  Tensor lse;        // [H, T] f32
  Tensor x_mid;      // [T, D] act: after attention's residual
  Tensor gate_up;    // [T, 2F] act
  Tensor v_qkv, v_o, v_gate_up, v_down;  // [T, ΣR] f32; empty without LoRA
};
// x: where the layer's input lies already; empty: it is taken too.
LayerSaved take_saved(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act,
                      const LayerLora* lora, Tensor x = {});

// The scratch that Decoder::forward and Decoder::backward take at most.
std::size_t forward_scratch_bytes(const ModelConfig& config, std::int64_t rows, DType act);
std::size_t backward_scratch_bytes(const ModelConfig& config, std::int64_t rows, DType act);

// --- temporaries: what one block of a layer takes from scratch, for `rows` rows
// ------------------------------------ Two in one place: the one above has been used up when the one below is
// written.

// Where heads are normed, the fused projection after head_norm; otherwise empty.
struct HeadNormed {
  Tensor qkv;   // [T, (H+2K)E] act
  Tensor rstd;  // [T, H+K] f32
  HeadNormed(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act);
};

struct AttentionForward {
  Tensor h;     // [T, D] act: normed input
  Tensor rstd;  // [T] f32
  HeadNormed head;
  AttentionForward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act);
};

struct MlpForward {
  Tensor h;       // [T, D] act: normed input  } one place
  Tensor swiglu;  // [T, F] act                }
  Tensor rstd;    // [T] f32
  MlpForward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act);
};

struct MlpBackward {
  Tensor swiglu;     // [T, F] act: made again  } one place
  Tensor d_gate_up;  // [T, 2F] act             }
  Tensor d_swiglu;   // [T, F] act                     } one place
  Tensor h, d_h;     // [T, D] act, h made again       }
  Tensor rstd;       // [T] f32
  MlpBackward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act);
};

struct AttentionBackward {
  Tensor d_attention;  // [T, H E] act                 } one place
  Tensor h, d_h;       // [T, D] act, h made again     }
  Tensor d_qkv;        // [T, (H+2K)E] act
  Tensor rstd;         // [T] f32
  HeadNormed head;
  AttentionBackward(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act);
};

}  // namespace slideway
