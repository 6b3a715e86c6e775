#include "cli/plan.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "formats/gguf.h"
#include "lora/lora_layout.h"
#include "memory/budget.h"
#include "model/shapes.h"
#include "train/step_work.h"

namespace slideway {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kProcessBytes = std::uint64_t(1)
                                        << 30;  // program, driver, tokenizer and data of a usual run

struct PlanWords {
  std::string model, gpu = "RTX 4090", gpu_memory, ram = "128GiB", link, dram;
  double teraflops = 0;
  std::vector<std::int64_t> tokens = {8192, 16384, 32768, 65536};
  int sequence_len = 1024, micro_batch_size = 4, lora_r = 0, layers = 0;
  double max_grad_norm = 1;
};

ModelConfig config_of(const PlanWords& words) {
  if (is_known_shape(words.model)) return config_of_shape(words.model, words.layers);
  if (words.layers > 0)
    fail(ErrorKind::invalid_input, "--layers goes with a known shape, not with the files of a model");
  const fs::path path = words.model;
  if (path.extension() == ".gguf") return load_config(GgufFile(path));
  if (!fs::exists(path)) config_of_shape(words.model);  // says which shapes are known
  return load_config(fs::is_directory(path) ? path : path.parent_path());
}

MachineRates machine_of(const PlanWords& words) {
  MachineRates machine = machine_named(words.gpu);
  if (!words.gpu_memory.empty()) machine.gpu_bytes = parse_bytes(words.gpu_memory);
  if (words.teraflops > 0) machine.product_flops = words.teraflops * 1e12;
  if (!words.link.empty()) machine.copy_up = machine.copy_down = double(parse_bytes(words.link));
  if (!words.dram.empty()) machine.dram = double(parse_bytes(words.dram));
  return machine;
}

TrainOptions options_of(const PlanWords& words, std::int64_t tokens) {
  TrainOptions options{.base_model = words.model,
                       .adapter = words.lora_r > 0 ? AdapterKind::lora : AdapterKind::none,
                       .lora_r = std::max(words.lora_r, 1),
                       .sequence_len = words.sequence_len,
                       .max_grad_norm = words.max_grad_norm};
  const std::int64_t samples = tokens / words.sequence_len;
  if (samples < 1 || tokens % words.sequence_len != 0)
    fail(ErrorKind::invalid_input, "--tokens ", tokens, " is not a multiple of --sequence-len ",
         words.sequence_len);
  options.micro_batch_size = int(std::min<std::int64_t>(words.micro_batch_size, samples));
  if (samples % options.micro_batch_size != 0)
    fail(ErrorKind::invalid_input, "--tokens ", tokens, " makes ", samples,
         " samples, which --micro-batch-size ", words.micro_batch_size, " does not divide");
  options.gradient_accumulation_steps = int(samples / options.micro_batch_size);
  return options;
}

struct Planned {
  TrainPlan plan;
  StepForecast forecast;
};

class Planner {
 public:
  explicit Planner(const PlanWords& words)
      : words_(words), config_(config_of(words)), layout_(make_layout(config_)), machine_(machine_of(words)) {
    if (words.lora_r > 0)
      lora_ = make_lora_layout(layout_, {.r = words.lora_r,
                                         .lora_alpha = 2.0 * words.lora_r,
                                         .target_modules = choose_modules("all-linear")});
  }

  Planned plan(std::int64_t tokens) const {
    const TrainOptions options = options_of(words_, tokens);
    TrainPlan plan = make_train_plan(
        options, {.config = &config_,
                  .layout = &layout_,
                  .lora = lora(),
                  .micro_batch_rows = std::int64_t(options.micro_batch_size) * words_.sequence_len,
                  .device = DeviceKind::cuda,
                  .device_copies = true,
                  .preferred_activation = DType::bf16,
                  .device_bytes = machine_.gpu_bytes,
                  .host_bytes = parse_bytes(words_.ram),
                  .process_bytes = kProcessBytes});
    const StepWork work = step_work(config_, layout_, plan, lora(), words_.max_grad_norm, double(tokens),
                                    double(words_.sequence_len));
    return {std::move(plan), forecast_step(work, machine_)};
  }

  std::string head() const {
    std::ostringstream out;
    out << std::setprecision(3) << words_.model << ": " << double(layout_.parameters()) * 1e-9
        << " B parameters, " << config_.num_layers() << " layers; "
        << (lora_ ? "LoRA of rank " + std::to_string(words_.lora_r) + " on all linear modules"
            : words_.max_grad_norm > 0 ? std::string("all parameters, clipped")
                                       : "all parameters, not clipped")
        << ", sequences of " << words_.sequence_len << " tokens\n"
        << machine_.name << " with " << bytes_text(machine_.gpu_bytes) << " at "
        << machine_.product_flops * 1e-12 << " TFLOP/s, link " << machine_.copy_up * 1e-9
        << " GB/s each way; host " << bytes_text(parse_bytes(words_.ram)) << " at " << machine_.dram * 1e-9
        << " GB/s\n";
    return out.str();
  }

 private:
  const LoraLayout* lora() const { return lora_ ? &*lora_ : nullptr; }

  const PlanWords& words_;
  ModelConfig config_;
  ModelLayout layout_;
  MachineRates machine_;
  std::optional<LoraLayout> lora_;
};

std::string row(std::int64_t tokens, const Planned& planned) {
  std::ostringstream out;
  const TrainPlan& plan = planned.plan;
  out << std::setw(12) << tokens << std::setw(12) << bytes_text(plan.total(Tier::device)) << std::setw(12)
      << bytes_text(plan.total(Tier::host) + plan.total(Tier::pinned)) << std::setw(8) << plan.kept_layers
      << std::fixed << std::setprecision(2) << std::setw(10) << planned.forecast.step_s
      << std::setprecision(0) << std::setw(10) << double(tokens) / planned.forecast.step_s << "  "
      << name_of(planned.forecast.limit) << '\n';
  return out.str();
}

std::string row_or_reason(const Planner& planner, std::int64_t tokens) {
  try {
    return row(tokens, planner.plan(tokens));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    const std::string text = error.what();  // ends with the whole table
    std::ostringstream out;
    out << std::setw(12) << tokens << "  " << text.substr(0, text.find(". The smallest plan")) << '\n';
    return out.str();
  }
}

int plan(const PlanWords& words) {
  const Planner planner(words);
  std::string text =
      planner.head() + "\n tokens/step  GPU memory  host memory  kept  step s >=  tokens/s <=  limit\n";
  if (words.tokens.size() == 1) {
    const Planned planned = planner.plan(words.tokens.front());
    text += row(words.tokens.front(), planned) + "\n" + planned.plan.table();
  } else {
    for (const std::int64_t tokens : words.tokens) text += row_or_reason(planner, tokens);
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("plan", "Forecast memory and time of training on a machine that need not be here");
  auto words = std::make_shared<PlanWords>();
  command
      ->add_option("MODEL", words->model,
                   "A folder with config.json, a .gguf file, or a shape: " + known_shapes())
      ->required();
  command->add_option("--gpu", words->gpu, "The card: " + known_machine_names())->capture_default_str();
  command->add_option("--gpu-memory", words->gpu_memory,
                      "Of the card, such as 24GiB; what it has by default");
  command->add_option("--ram", words->ram, "Of the host")->capture_default_str();
  command->add_option("--tflops", words->teraflops, "Rate of large BF16 products, TFLOP/s");
  command->add_option("--link", words->link, "Bytes a second between host and card, one way, such as 25GB");
  command->add_option("--dram", words->dram, "Bytes a second that the host's memory moves, such as 100GB");
  command
      ->add_option("--tokens", words->tokens, "Of a step; with one number the whole memory plan is printed")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--sequence-len", words->sequence_len)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--micro-batch-size", words->micro_batch_size, "Samples of one micro-batch, at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-grad-norm", words->max_grad_norm, "0: no clipping")->capture_default_str();
  command->add_option("--lora-r", words->lora_r, "Train a LoRA adapter of this rank; 0: all parameters")
      ->check(CLI::Range(0, 4096));
  command->add_option("--layers", words->layers, "Only so many layers of a known shape")
      ->check(CLI::Range(0, 4096));
  command->callback([words, &exit_code] { exit_code = plan(*words); });
}

}  // namespace slideway
