#include "cli/bench.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <cstdio>
#include <iomanip>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/machine.h"
#include "memory/budget.h"
#include "model/shapes.h"
#include "train/run_device.h"
#include "train/train_bench.h"

namespace slideway {
namespace {

struct BenchWords {
  std::string shape = "llama-3.1-8b";
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<std::string> gpu_memory = {""};
  std::vector<std::int64_t> tokens = {8192, 16384, 32768, 65536};
  std::vector<double> max_grad_norm = {1};
  int layers = 0, sequence_len = 1024, micro_batch_size = 4, lora_r = 0, steps = 4, threads = 0;
  bool table = false;
};

std::string share(double part, double whole) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << 100 * part / whole << " %";
  return out.str();
}

// One line a run; what it means is in --help.
std::string line(const TrainBenchOptions& o, const TrainBenchResult& r, const MeasuredRates& rates,
                 double parameters) {
  std::ostringstream out;
  const double hardware = r.work.forward.flops + r.work.backward.flops;
  const double host = double(r.plan.total(Tier::pinned) + r.plan.total(Tier::host));
  out << std::setw(7) << o.tokens << " tokens  max_grad_norm " << o.max_grad_norm << "  " << std::fixed
      << std::setprecision(3) << r.step_s << " s  " << std::setprecision(0) << double(o.tokens) / r.step_s
      << " tokens/s  " << std::setprecision(1) << r.work.model_flops / r.step_s * 1e-12 << " TFLOP/s ("
      << hardware / r.step_s * 1e-12 << " with what is redone, "
      << share(hardware / r.step_s, rates.machine.product_flops) << " of products)  bound "
      << std::setprecision(3) << r.forecast.step_s << " s by " << name_of(r.forecast.limit) << ", reached "
      << share(r.forecast.step_s, r.step_s) << "  [GPU " << r.forecast.gpu_s << ", link " << r.forecast.link_s
      << ", host memory " << r.forecast.dram_s << "]  device " << bytes_text(r.device_bytes) << " of "
      << bytes_text(r.plan.total(Tier::device)) << " planned, kept " << r.plan.kept_layers << "  host "
      << std::setprecision(2) << host / parameters << " B/parameter planned, RSS at most "
      << bytes_text(peak_resident_memory()) << "  loss " << std::setprecision(4) << r.loss << '\n';
  return out.str();
}

int bench(const BenchWords& words) {
  const auto device = make_device(words.device);
  Threads threads(words.threads);
  const MeasuredRates rates = measure_machine(*device, threads);
  std::printf("%s\n", rates.line().c_str());
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  const auto note = [&](const std::string& text) {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "%7.2f s  %s\n", since.count(), text.c_str());
  };
  TrainBench bench(*device, threads, config_of_shape(words.shape, words.layers), words.lora_r);
  note("weights filled in");
  const double parameters = double(bench.layout().parameters());
  std::printf("%s, %.3f B parameters, %d threads, sequences of %d, micro-batches of %d\n",
              words.shape.c_str(), parameters * 1e-9, threads.count(), words.sequence_len,
              words.micro_batch_size);
  std::fflush(stdout);
  for (const std::string& memory : words.gpu_memory)
    for (const double max_grad_norm : words.max_grad_norm)
      for (const std::int64_t tokens : words.tokens) {
        const TrainBenchOptions options{.tokens = tokens,
                                        .sequence_len = words.sequence_len,
                                        .micro_batch_size = words.micro_batch_size,
                                        .max_grad_norm = max_grad_norm,
                                        .gpu_memory = memory.empty() ? 0 : parse_bytes(memory),
                                        .steps = words.steps,
                                        .on_note = note};
        try {
          const TrainBenchResult result = bench.run(options, rates);
          std::fputs(line(options, result, rates, parameters).c_str(), stdout);
          if (words.table) std::fputs(result.plan.table().c_str(), stdout);
        } catch (const Error& error) {  // the others may fit
          if (error.kind() != ErrorKind::out_of_memory) throw;
          std::printf("%7lld tokens  max_grad_norm %g  %s\n", static_cast<long long>(tokens), max_grad_norm,
                      error.what());
        }
        std::fflush(stdout);
      }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Time this machine at this program's work");
  command->require_subcommand(1);
  CLI::App* train = command->add_subcommand(
      "train",
      "Training steps of random weights of true shapes: first the machine's own rates, then a line a run");
  auto words = std::make_shared<BenchWords>();
  train->add_option("--shape", words->shape, known_shapes())->capture_default_str();
  train->add_option("--layers", words->layers, "Only so many of its layers")->check(CLI::Range(0, 4096));
  train->add_option("--device", words->device)
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, DeviceChoice>{{"auto", DeviceChoice::automatic},
                                                                      {"cpu", DeviceChoice::cpu},
                                                                      {"cuda", DeviceChoice::cuda},
                                                                      {"seeded", DeviceChoice::seeded}}));
  train
      ->add_option("--gpu-memory", words->gpu_memory,
                   "Hard limits, such as 24GiB,8GiB; what the card has by default")
      ->delimiter(',');
  train->add_option("--tokens", words->tokens, "Of a step")->delimiter(',')->capture_default_str();
  train->add_option("--sequence-len", words->sequence_len)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  train->add_option("--micro-batch-size", words->micro_batch_size, "Samples")->check(CLI::Range(1, 1 << 20));
  train->add_option("--max-grad-norm", words->max_grad_norm, "0: no clipping")->delimiter(',');
  train->add_option("--lora-r", words->lora_r, "A LoRA adapter over a frozen base")
      ->check(CLI::Range(0, 4096));
  train->add_option("--steps", words->steps, "Timed steps, after two to warm up")
      ->check(CLI::Range(1, 1000000));
  train->add_option("--threads", words->threads);
  train->add_flag("--table", words->table, "Print each memory plan");
  train->callback([words, &exit_code] { exit_code = bench(*words); });
}

}  // namespace slideway
