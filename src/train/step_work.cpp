#include "train/step_work.h"

#include <algorithm>

namespace slideway {
namespace {

// Weights of a layer that products read: all but norms and biases.
double product_weights(const BlockLayout& layer) {
  double sum = 0;
  for (const TensorSpec& spec : layer.tensors)
    if (spec.shape.size() == 2) sum += double(spec.elements());
  return sum;
}

double attended(double tokens, double sequence, int window) {
  // Pairs of query and key below the diagonal.
  if (window == 0 || window >= sequence) return tokens * sequence / 2;
  return tokens * (window - double(window) * window / (2 * sequence));
}

}  // namespace

StepWork step_work(const ModelConfig& config, const ModelLayout& layout, const TrainPlan& plan,
                   const LoraLayout* lora, double max_grad_norm, double tokens, double sequence) {
  const int layers = config.num_layers();
  const bool full = lora == nullptr;
  const double exact = plan.numeric.precision.weights == DType::f32 ? 2 : 1;  // times the bytes of BF16
  const double act = double(bytes_of(plan.numeric.precision.activations));
  const double weights = product_weights(layout.layers.front()),
               adapter = full ? 0 : double(lora->parameters());
  const double head = double(config.vocab_size * config.hidden_size);
  const double redone = 1 - double(plan.kept_layers) / layers;

  double attention = 0;
  for (const LayerConfig& layer : config.layers)
    attention +=
        4 * attended(tokens, sequence, layer.sliding_window) * config.num_attention_heads * config.head_dim;
  const double products = 2 * tokens * weights * layers, heads = 2 * tokens * head,
               adapters = 2 * tokens * adapter;
  // A frozen weight has no gradient: half of backward's products.
  const double gradient_products = full ? 2 : 1;
  // Backward makes everything again but the down projection, which is a product like the others.
  const double down = double(config.hidden_size * config.intermediate_size) / weights;

  StepWork work{.tokens = tokens, .clips = full && max_grad_norm > 0};
  work.forward.flops = products + attention + adapters;
  const double backward = gradient_products * (products + heads) + 2.5 * attention + 2 * adapters;
  work.model_flops = work.forward.flops + heads + backward - 0.5 * attention;
  work.backward.flops = heads + backward + redone * ((1 - down) * products + attention + adapters) +
                        (plan.head_in_one_pass ? 0 : heads);

  const double layer_bytes = double(layout.layers.front().elements) * 2 * exact * layers;
  const double head_bytes = head * 2 * exact * (plan.head_in_one_pass ? 1 : 2);
  const double rows = tokens * double(config.hidden_size) * act;
  work.forward.up_bytes = layer_bytes + rows + adapter * 4;
  work.backward.up_bytes = layer_bytes + head_bytes;
  if (full) {
    work.updated = double(layout.parameters());
    const double gradient = double(bytes_of(plan.numeric.precision.gradients));
    work.backward.down_bytes = double(layout.layers.front().elements) * layers * gradient + head * 4 + rows;
  } else {
    work.updated = adapter;
    work.backward.down_bytes = adapter * 4;
  }
  return work;
}

}  // namespace slideway
