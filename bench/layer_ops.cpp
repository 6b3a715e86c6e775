// Where the time of a training step goes: every op of one decoder layer and of the head, forward and backward, at the
// shapes of SmolLM2-135M, and what a step of all layers would come to.
//
//   bench_layer_ops [f32|bf16] [rows] [rounds]        (f32 1024 3)
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "core/threads.h"
#include "model/decoder.h"
#include "timed_ops.h"

namespace slideway {
namespace {

ModelConfig smollm2() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 49152;
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  config.num_attention_heads = 9;
  config.num_key_value_heads = 3;
  config.head_dim = 64;
  config.tie_word_embeddings = true;
  config.ropes.resize(1);
  for (int i = 0; i < 32; ++i) config.ropes[0].inv_freq.push_back(std::pow(100000.0f, -float(i) / 32));
  config.layers.resize(30);
  return config;
}

class Bench {
 public:
  Bench(DType type, std::int64_t rows)
      : type_(type), rows_(rows), stream_(device_->make_stream("compute")), starts_{0, std::int32_t(rows)} {
    weights_ = random(layout_.layers[0].elements, type, 0.05f);
    head_ = random(layout_.embed.elements, type, 0.05f);
    grads_ = device_->allocate(std::size_t(layout_.layers[0].elements) * 4);
    d_head_ = device_->allocate(std::size_t(layout_.embed.elements) * 4);
    x_ = random(rows * config_.hidden_size, type, 1.0f);
    arena_bytes_ = device_->allocate(std::size_t(2) << 30);
  }

  void layer(Ops& ops) {
    Arena arena(arena_bytes_.span());
    Decoder decoder(config_, ops, type_);
    const std::int64_t D = config_.hidden_size;
    const Tensor positions = arena.take("positions", DType::i32, {rows_});
    for (std::int64_t t = 0; t < rows_; ++t) positions.i32()[t] = std::int32_t(t);
    const Tensor inv_freq(config_.ropes[0].inv_freq.data(), DType::f32, {config_.head_dim / 2});
    const Rows rows{.positions = positions, .sequences = {.starts = starts_}};
    const LayerWeights weights = layer_weights(layout_.layers[0], weights_.data(), type_);
    const LayerSaved saved =
        take_saved(arena, config_, rows_, type_, nullptr, Tensor(x_.data(), type_, {rows_, D}));
    const Tensor out = arena.take("out", type_, {rows_, D});
    decoder.forward(0, weights, rows, inv_freq, saved, out, nullptr, arena);
    const Tensor sum(grads_.data(), DType::f32, {layout_.layers[0].elements});
    ops.fill_zero(sum);
    decoder.backward(0, weights, layer_weights(layout_.layers[0], grads_.data(), DType::f32), rows, inv_freq,
                     saved, out, nullptr, arena);
  }

  void head(Ops& ops) {
    Arena arena(arena_bytes_.span());
    const std::int64_t D = config_.hidden_size, V = config_.vocab_size;
    const Tensor w = Tensor(head_.data(), type_, {V, D}), d_w = Tensor(d_head_.data(), DType::f32, {V, D});
    const Tensor x(x_.data(), type_, {rows_, D}), d_x = arena.take("d_x", type_, {rows_, D});
    const Tensor z = arena.take("z", DType::f32, {rows_, V}),
                 max_sum = arena.take("m, s", DType::f32, {rows_, 2});
    const Tensor at = arena.take("logit", DType::f32, {rows_}),
                 targets = arena.take("targets", DType::i32, {rows_});
    for (std::int64_t t = 0; t < rows_; ++t) targets.i32()[t] = std::int32_t(t * 7 % V);
    const Tensor d_z = type_ == DType::f32 ? z : arena.take("d_z", type_, {rows_, V});
    ops.linear(z, x, w, {});
    ops.cross_entropy_tile(max_sum, at, z, targets, 0);
    ops.cross_entropy_backward(d_z, z, max_sum, targets, 0, 1.0f / float(rows_));
    ops.fill_zero(d_w);
    ops.linear_backward_weight(d_w, {}, d_z, x);
    ops.linear_backward_input(d_x, d_z, w, false);
  }

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  int layers() const { return config_.num_layers(); }

 private:
  Buffer random(std::int64_t n, DType type, float spread) {
    Buffer buffer = device_->allocate(std::size_t(n) * bytes_of(type));
    std::minstd_rand draw(1);
    std::uniform_real_distribution<float> value(-spread, spread);
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = value(draw);
      if (type == DType::f32) reinterpret_cast<float*>(buffer.data())[i] = x;
      if (type == DType::bf16) reinterpret_cast<bf16_t*>(buffer.data())[i] = to_bf16(x);
    }
    return buffer;
  }

  DType type_;
  std::int64_t rows_;
  ModelConfig config_ = smollm2();
  ModelLayout layout_ = make_layout(config_);
  std::unique_ptr<Device> device_ = make_host_device();
  std::unique_ptr<Stream> stream_;
  std::vector<std::int32_t> starts_;
  Buffer weights_, head_, grads_, d_head_, x_, arena_bytes_;
};

// Of each op the fastest round.
template <class Work>
OpTimes best_of(int rounds, const Work& work) {
  OpTimes best;
  for (int i = 0; i < rounds; ++i) {
    OpTimes times;
    work(times);
    best.keep_faster(times);
  }
  return best;
}

int run(int argc, char** argv) {
  const DType type = argc > 1 && std::strcmp(argv[1], "bf16") == 0 ? DType::bf16 : DType::f32;
  const std::int64_t rows = argc > 2 ? std::atoll(argv[2]) : 1024;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  Bench bench(type, rows);
  Threads threads;
  const auto timed = [&](OpTimes& times) {
    return std::make_unique<TimedOps>(make_cpu_ops(bench.stream(), threads), bench.stream(), times);
  };
  const OpTimes layer = best_of(rounds, [&](OpTimes& times) { bench.layer(*timed(times)); });
  const OpTimes head = best_of(rounds, [&](OpTimes& times) { bench.head(*timed(times)); });
  std::printf("one layer, %lld rows, %s, %d threads\n", (long long)rows, std::string(name_of(type)).c_str(),
              threads.count());
  layer.print();
  std::printf("\nthe head\n");
  head.print();
  const double step = layer.seconds() * bench.layers() + head.seconds();
  std::printf("\n%d layers and the head, forward and backward: %.2f s, %.1f tokens/s without the update\n",
              bench.layers(), step, double(rows) / step);
  return 0;
}

}  // namespace
}  // namespace slideway

int main(int argc, char** argv) {
  return slideway::run(argc, argv);
}
