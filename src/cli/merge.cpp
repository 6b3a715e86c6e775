#include "cli/merge.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>

#include "core/log.h"
#include "lora/merge.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace slideway {
namespace {

struct MergeOptions {
  std::string model, adapter, out, dtype;
};

DType saved_type(const MergeOptions& options, const ModelConfig& config) {
  const std::string name = options.dtype.empty() ? config.torch_dtype : options.dtype;
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16" || options.dtype.empty()) return DType::bf16;
  fail(ErrorKind::invalid_input, "--dtype should be bfloat16, float16 or float32, found ", name);
}

void merge(const MergeOptions& options) {
  const auto files = WeightFiles::open(options.model);
  SaveOptions save{.type = saved_type(options, files->config())};
  const Adapter adapter =
      load_adapter(options.adapter, files->layout(),
                   [&](const TensorSpec& spec, std::span<float> out) { files->read(spec, out); });
  check_mergeable(adapter, files->layout());
  if (files->is_gguf()) {
    const auto tokenizer = Tokenizer::load(options.model);
    save.extra_files = {{"tokenizer.json", tokenizer->to_json()},
                        {"tokenizer_config.json", tokenizer->config_json()}};
  }
  Threads threads;
  const auto fetch = [&](const TensorSpec& spec, std::span<float> out) {
    files->read(spec, out);
    merge_adapter(adapter, spec, out, threads);
  };
  save_model(options.out, *files, fetch, save);
  log(LogLevel::info, "saved ", options.out);
}

}  // namespace

void add_merge(CLI::App& app, int&) {
  auto o = std::make_shared<MergeOptions>();
  CLI::App* command = app.add_subcommand("merge", "Fold an adapter into its model");
  command->add_option("MODEL", o->model, "A Hugging Face folder or a .gguf file")->required();
  command->add_option("ADAPTER", o->adapter, "A PEFT adapter folder")->required();
  command->add_option("OUT", o->out, "The folder to be written")->required();
  command->add_option("--dtype", o->dtype, "bfloat16, float16 or float32 (default: as the model is stored)");
  command->callback([o] { merge(*o); });
}

}  // namespace slideway
