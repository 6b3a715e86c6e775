#include "cli/config_keys.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "core/error.h"
#include "memory/budget.h"

namespace slideway {
namespace {

std::string scalar(const YAML::Node& node, const char* expected) {
  if (!node.IsScalar())
    fail(ErrorKind::invalid_input, "expected ", expected, ", found a ",
         node.IsSequence() ? "list"
         : node.IsMap()    ? "map"
                           : "null");
  return node.Scalar();
}

std::string quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

template <class Number>
std::string number_text(Number value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

template <class Number>
Number number(const YAML::Node& node) {
  const char* expected = std::is_integral_v<Number> ? "a whole number" : "a number";
  const std::string text = scalar(node, expected);
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  Number value{};
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(ErrorKind::invalid_input, "expected ", expected, ", found '", text, "'");
  return value;
}

bool boolean(const YAML::Node& node) {
  const std::string text = scalar(node, "true or false");
  if (text == "true" || text == "True" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "False" || text == "no" || text == "off") return false;
  fail(ErrorKind::invalid_input, "expected true or false, found '", text, "'");
}

bool is_null(const YAML::Node& node) {
  return node.IsNull() || (node.IsScalar() && node.Scalar().empty());
}

template <class Number>
ConfigKey number_key(std::string name, std::vector<std::string> aliases, Number TrainOptions::* field,
                     std::string help) {
  return {std::move(name), std::move(aliases), std::move(help),
          [field](TrainOptions& o, const YAML::Node& node) { o.*field = number<Number>(node); },
          [field](const TrainOptions& o) { return number_text(o.*field); }};
}

ConfigKey bool_key(std::string name, std::vector<std::string> aliases, bool TrainOptions::* field,
                   std::string help) {
  return {std::move(name), std::move(aliases), std::move(help),
          [field](TrainOptions& o, const YAML::Node& node) { o.*field = boolean(node); },
          [field](const TrainOptions& o) { return std::string(o.*field ? "true" : "false"); }};
}

ConfigKey text_key(std::string name, std::vector<std::string> aliases, std::string TrainOptions::* field,
                   std::string help) {
  return {std::move(name), std::move(aliases), std::move(help),
          [field](TrainOptions& o, const YAML::Node& node) {
            o.*field = is_null(node) ? "" : scalar(node, "text");
          },
          [field](const TrainOptions& o) { return quoted(o.*field); }};
}

// "24GiB"; a plain number is bytes; 0 or nothing: no limit of its own.
ConfigKey bytes_key(std::string name, std::vector<std::string> aliases, std::uint64_t TrainOptions::* field,
                    std::string help) {
  return {std::move(name), std::move(aliases), std::move(help),
          [field](TrainOptions& o, const YAML::Node& node) {
            o.*field = is_null(node) ? 0 : parse_bytes(scalar(node, "a size such as 24GiB"));
          },
          [field](const TrainOptions& o) { return number_text(o.*field); }};
}

template <class Enum>
using Names = std::vector<std::pair<std::string, Enum>>;

// The first name of each value is the one that is printed.
template <class Enum>
ConfigKey choice_key(std::string name, std::vector<std::string> aliases, Enum TrainOptions::* field,
                     Names<Enum> names, std::string help) {
  const auto read = [field, names](TrainOptions& o, const YAML::Node& node) {
    const std::string text = is_null(node) ? "" : scalar(node, "a name");
    std::string known;
    for (const auto& [spelling, value] : names) {
      if (spelling == text) {
        o.*field = value;
        return;
      }
      if (!spelling.empty()) known += (known.empty() ? "" : ", ") + spelling;
    }
    fail(ErrorKind::invalid_input, "expected one of ", known, ", found '", text, "'");
  };
  const auto print = [field, names](const TrainOptions& o) {
    return std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.second == o.*field; })
        ->first;
  };
  return {std::move(name), std::move(aliases), std::move(help), read, print};
}

std::vector<std::string> texts(const YAML::Node& node) {
  std::vector<std::string> all;
  if (is_null(node)) return all;
  if (node.IsScalar()) return {node.Scalar()};
  if (!node.IsSequence()) fail(ErrorKind::invalid_input, "expected a list of names, found a map");
  for (const YAML::Node& item : node) all.push_back(scalar(item, "a name"));
  return all;
}

std::string list_text(const std::vector<std::string>& all) {
  std::string text = "[";
  for (const std::string& item : all) text += (text.size() > 1 ? ", " : "") + quoted(item);
  return text + "]";
}

// A path, a list of paths, or axolotl's list of {path: …}. Its type and ds_type are told from the rows themselves.
void read_datasets(TrainOptions& o, const YAML::Node& node) {
  o.datasets.clear();
  if (node.IsScalar()) {
    o.datasets.push_back(node.Scalar());
    return;
  }
  if (!node.IsSequence())
    fail(ErrorKind::invalid_input, "expected a path, a list of paths, or a list of {path: …}");
  for (const YAML::Node& item : node) {
    if (item.IsScalar()) {
      o.datasets.push_back(item.Scalar());
      continue;
    }
    if (!item.IsMap() || !item["path"]) fail(ErrorKind::invalid_input, "a data set needs a path");
    for (const auto& field : item)
      if (const std::string key = field.first.Scalar(); key != "path" && key != "type" && key != "ds_type")
        fail(ErrorKind::invalid_input, "a data set has no '", key,
             "'; it has a path (and, for axolotl's sake, type)");
    o.datasets.push_back(scalar(item["path"], "a path"));
  }
}

// A key of another tool that is accepted at the one value that changes nothing here.
ConfigKey neutral_key(std::string name, std::vector<std::string> values, std::string help) {
  return {name,
          {},
          std::move(help),
          [name, values](TrainOptions&, const YAML::Node& node) {
            const std::string text = is_null(node) ? "" : scalar(node, "a value");
            if (std::find(values.begin(), values.end(), text) == values.end())
              fail(ErrorKind::unsupported, "'", text, "' is not supported (only ",
                   values.front().empty() ? "an empty value" : values.front(), ")");
          },
          nullptr};
}

std::vector<ConfigKey> make_keys() {
  using O = TrainOptions;
  std::vector<ConfigKey> keys{
      text_key("base_model", {"model_name_or_path", "model"}, &O::base_model,
               "Hugging Face folder or .gguf file"),
      choice_key<AdapterKind>("adapter", {"finetuning_type"}, &O::adapter,
                              {{"none", AdapterKind::none},
                               {"full", AdapterKind::none},
                               {"", AdapterKind::none},
                               {"lora", AdapterKind::lora}},
                              "none: train every parameter; lora: an adapter over the frozen model"),
      number_key("lora_r", {"lora_rank"}, &O::lora_r, "rank"),
      number_key("lora_alpha", {}, &O::lora_alpha, "scale = lora_alpha / lora_r"),
      number_key("lora_dropout", {}, &O::lora_dropout, "on the adapter's input"),
      {"lora_target_modules",
       {"lora_target", "target_modules"},
       "names such as q_proj; empty: every linear module",
       [](O& o, const YAML::Node& node) {
         o.lora_target_modules = texts(node);
         if (o.lora_target_modules == std::vector<std::string>{"all-linear"} ||
             o.lora_target_modules == std::vector<std::string>{"all"})
           o.lora_target_modules.clear();
       },
       [](const O& o) { return list_text(o.lora_target_modules); }},
      {"lora_target_linear",
       {},
       "true: every linear module",
       [](O& o, const YAML::Node& node) {
         if (!boolean(node))
           fail(ErrorKind::invalid_input, "false says nothing: name lora_target_modules instead");
         o.lora_target_modules.clear();
       },
       nullptr,
       "lora_target_modules"},
      bool_key("use_rslora", {"peft_use_rslora"}, &O::use_rslora, "scale = lora_alpha / sqrt(lora_r)"),

      {"datasets",
       {"dataset", "train_file", "data_files"},
       "JSONL files: rows of text, prompt + completion, or messages",
       read_datasets,
       [](const O& o) { return list_text(o.datasets); }},
      text_key("chat_template", {}, &O::chat_template, "a Jinja file in place of the model's template"),
      number_key("sequence_len", {"max_length", "max_seq_length", "cutoff_len"}, &O::sequence_len,
                 "most tokens of a sample"),
      choice_key<LongRows>("long_rows", {"excess_length_strategy"}, &O::long_rows,
                           {{"truncate", LongRows::truncate},
                            {"drop", LongRows::drop},
                            {"refuse", LongRows::refuse},
                            {"raise", LongRows::refuse}},
                           "what to do with longer rows: truncate, drop, refuse"),
      bool_key("train_on_inputs", {"train_on_prompt"}, &O::train_on_inputs,
               "loss on prompts and user turns too"),
      bool_key("sample_packing", {"packing", "neat_packing"}, &O::sample_packing,
               "several samples share sequence_len, masked from each other"),

      number_key("micro_batch_size", {"per_device_train_batch_size"}, &O::micro_batch_size,
                 "samples of one micro-batch"),
      number_key("gradient_accumulation_steps", {}, &O::gradient_accumulation_steps,
                 "micro-batches of one update"),
      number_key("num_epochs", {"num_train_epochs"}, &O::num_epochs, "passes over the data"),
      number_key("max_steps", {}, &O::max_steps, "above 0: that many updates, whatever num_epochs says"),

      neutral_key("optimizer", {"adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf"}, "AdamW"),
      neutral_key("optim", {"adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf"}, "as optimizer"),
      number_key("learning_rate", {"lr"}, &O::learning_rate, "the highest rate of the schedule"),
      choice_key<LrSchedule>("lr_scheduler", {"lr_scheduler_type"}, &O::lr_scheduler,
                             {{"constant", LrSchedule::constant},
                              {"constant_with_warmup", LrSchedule::constant},
                              {"linear", LrSchedule::linear},
                              {"cosine", LrSchedule::cosine}},
                             "constant, linear or cosine, after the warm-up"),
      number_key("warmup_steps", {}, &O::warmup_steps, "updates over which the rate rises from 0"),
      number_key("warmup_ratio", {}, &O::warmup_ratio, "the same as a share of all updates"),
      number_key("weight_decay", {}, &O::weight_decay, "decoupled; never on norms and biases"),
      number_key("adam_beta1", {}, &O::adam_beta1, "AdamW"),
      number_key("adam_beta2", {}, &O::adam_beta2, "AdamW"),
      number_key("adam_epsilon", {}, &O::adam_epsilon, "AdamW"),
      number_key("max_grad_norm", {"gradient_clipping"}, &O::max_grad_norm, "exact global clipping; 0: none"),

      text_key("output_dir", {}, &O::output_dir, "results, checkpoints, log"),
      number_key("logging_steps", {}, &O::logging_steps, "updates a line of trainer_log.jsonl"),
      bool_key("use_tensorboard", {}, &O::use_tensorboard,
               "the same lines as TensorBoard event files in output_dir/logs"),
      number_key("save_steps", {}, &O::save_steps, "updates between checkpoints; 0: only at the end"),
      number_key("save_total_limit", {}, &O::save_total_limit, "newest checkpoints kept; 0: all"),
      text_key("resume_from_checkpoint", {"auto_resume_from_checkpoints"}, &O::resume_from_checkpoint,
               "a checkpoint folder, or auto: the newest whole one"),
      choice_key<SaveType>("save_dtype", {}, &O::save_dtype,
                           {{"auto", SaveType::automatic},
                            {"bf16", SaveType::bf16},
                            {"bfloat16", SaveType::bf16},
                            {"fp32", SaveType::fp32},
                            {"float32", SaveType::fp32}},
                           "of the result; auto: as the base model was stored"),
      bytes_key("max_shard_size", {}, &O::max_shard_size, "of one safetensors file of the result"),

      choice_key<DeviceChoice>(
          "device", {}, &O::device,
          {{"auto", DeviceChoice::automatic},
           {"cpu", DeviceChoice::cpu},
           {"cuda", DeviceChoice::cuda},
           {"seeded", DeviceChoice::seeded}},
          "auto, cpu, or seeded: the sliding of a GPU played on the CPU in a random order"),
      number_key("device_seed", {}, &O::device_seed, "of the seeded device's order"),
      choice_key<ComputeType>(
          "compute", {}, &O::compute,
          {{"auto", ComputeType::automatic}, {"bf16", ComputeType::bf16}, {"fp32", ComputeType::fp32}},
          "bf16 weights and gradients, or fp32: from the exact master"),
      {"bf16",
       {},
       "axolotl's and Hugging Face's way to say compute",
       [](O& o, const YAML::Node& node) {
         const bool automatic = node.IsScalar() && node.Scalar() == "auto";
         o.compute = automatic       ? ComputeType::automatic
                     : boolean(node) ? ComputeType::bf16
                                     : ComputeType::fp32;
       },
       nullptr,
       "compute"},
      bytes_key("gpu_memory", {}, &O::gpu_memory,
                "hard limit of device memory, such as 24GiB; 0: what the device has"),
      bytes_key("ram", {}, &O::ram, "hard limit of this process's memory; 0: what the machine has"),
      number_key("slots", {}, &O::slots, "layer slots on the device; 0: chosen"),
      choice_key<ActivationPolicy>("activations", {}, &O::activations,
                                   {{"auto", ActivationPolicy::automatic},
                                    {"keep", ActivationPolicy::keep},
                                    {"recompute", ActivationPolicy::recompute}},
                                   "what backward needs: keep, recompute, or as much kept as fits"),
      {"gradient_checkpointing",
       {},
       "true: activations: recompute",
       [](O& o, const YAML::Node& node) {
         o.activations = boolean(node) ? ActivationPolicy::recompute : ActivationPolicy::automatic;
       },
       nullptr,
       "activations"},
      number_key("threads", {}, &O::threads, "of the CPU; 0: all that this process may use"),
      number_key("seed", {}, &O::seed, "of shuffling, dropout and new adapters"),
  };
  for (const char* key : {"load_in_8bit", "load_in_4bit", "fp16", "tf32", "group_by_length",
                          "early_stopping_patience", "debug", "eval_sample_packing", "do_eval"})
    keys.push_back(neutral_key(key, {"false", "False", ""}, "not supported; false is accepted"));
  for (const char* key : {"val_set_size", "evals_per_epoch", "saves_per_epoch", "eval_steps"})
    keys.push_back(neutral_key(key, {"0", "0.0", ""}, "not supported yet; 0 is accepted"));
  for (const char* key :
       {"wandb_project", "wandb_entity", "wandb_watch", "wandb_name", "wandb_log_model", "deepspeed", "fsdp",
        "fsdp_config", "special_tokens", "lora_modules_to_save", "peft_layers_to_transform"})
    keys.push_back(neutral_key(key, {""}, "not supported; empty is accepted"));
  for (const char* key :
       {"flash_attention", "xformers_attention", "sdp_attention", "pad_to_sequence_len", "strict"})
    keys.push_back(neutral_key(key, {"true", "false", "True", "False", ""}, "changes nothing here"));
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

}  // namespace slideway
