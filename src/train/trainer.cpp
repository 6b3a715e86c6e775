#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <deque>
#include <sstream>

#include "core/file.h"
#include "core/log.h"
#include "core/machine.h"
#include "formats/safetensors.h"
#include "model/weights.h"
#include "train/checkpoint.h"
#include "train/run_device.h"
#include "train/slider.h"
#include "train/store_files.h"

namespace slideway {
namespace {

AdapterConfig adapter_config(const TrainOptions& options) {
  AdapterConfig config{.r = options.lora_r,
                       .lora_alpha = options.lora_alpha,
                       .use_rslora = options.use_rslora,
                       .lora_dropout = options.lora_dropout,
                       .base_model_name_or_path = options.base_model};
  config.target_modules = options.lora_target_modules.empty() ? choose_modules("all-linear")
                                                              : choose_modules(options.lora_target_modules);
  return config;
}

// What must agree between a checkpoint and the run that goes on from it, beside the numeric plan.
std::string schedule_text(const TrainOptions& o) {
  std::ostringstream out;
  out.precision(17);
  out << "learning_rate " << o.learning_rate << ", lr_scheduler " << int(o.lr_scheduler) << ", warmup_steps "
      << o.warmup_steps << ", warmup_ratio " << o.warmup_ratio << ", weight_decay " << o.weight_decay
      << ", adam " << o.adam_beta1 << ' ' << o.adam_beta2 << ' ' << o.adam_epsilon << ", max_grad_norm "
      << o.max_grad_norm;
  if (o.adapter == AdapterKind::lora)
    out << ", lora_r " << o.lora_r << ", lora_alpha " << o.lora_alpha << ", lora_dropout " << o.lora_dropout;
  return out.str();
}

}  // namespace

struct Trainer::Run {
  TrainOptions options;
  fs::path output_dir;
  Threads threads;
  std::unique_ptr<WeightFiles> files;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat;
  std::unique_ptr<LoraLayout> lora;  // null: full-parameter
  std::vector<BlockLayout> lora_blocks;
  Dataset data;
  std::unique_ptr<BatchSampler> sampler;
  std::int64_t steps = 0;  // of the whole run
  std::unique_ptr<Device> device;
  TrainPlan plan;

  std::unique_ptr<LayerStore> base, adapter;
  std::unique_ptr<Slider> slider;
  std::unique_ptr<TrainLog> train_log;
  DataPosition position;                      // of the batch after the last one that has been waited for
  std::int64_t step = 0;                      // updates done
  std::int64_t launched = 0;                  // updates done or under way
  std::int64_t tokens = 0;                    // of the run up to step
  std::deque<std::int64_t> tokens_under_way;  // of each launched step that has not been waited for
  double loss_sum = 0;                        // of the steps since the last log line
  std::int64_t loss_count = 0;

  explicit Run(const TrainOptions& chosen);
  void make_plan();
  void check_disk() const;
  LayerStore& trained() { return lora ? *adapter : *base; }
  void load();
  void resume();
  void save(const TrainHooks& hooks);
  void save_result(const TrainHooks& hooks, const std::string& config_yaml);
  TrainerState state() const;
  void launch();
  bool save_is_due(std::int64_t after) const;
  void finish_step(const StepResult& result, double seconds, const TrainHooks& hooks);
};

Trainer::Run::Run(const TrainOptions& chosen)
    : options(chosen),
      output_dir(chosen.output_dir),
      threads(chosen.threads),
      files(WeightFiles::open(chosen.base_model)),
      tokenizer(Tokenizer::load(chosen.base_model)) {
  options.validate();
  chat = ChatTemplate::load(options.base_model);
  if (!options.chat_template.empty()) {
    const std::string source = read_text(options.chat_template);
    chat = chat ? chat->with_source(source)
                : std::make_unique<ChatTemplate>(source, ChatTemplate::SpecialTokens{});
  }
  if (options.adapter == AdapterKind::lora) {
    lora = std::make_unique<LoraLayout>(make_lora_layout(files->layout(), adapter_config(options)));
    lora_blocks = lora_block_layouts(*lora);
  }
  data = Dataset::load({options.datasets.begin(), options.datasets.end()}, options, *tokenizer, chat.get(),
                       &threads);
  sampler = std::make_unique<BatchSampler>(data, options);
  steps = total_steps(options, sampler->steps_per_epoch());
  device = make_device(options.device, options.device_seed);
  make_plan();
}

void Trainer::Run::make_plan() {
  const std::uint64_t process = resident_memory();
  PlanInputs inputs{.config = &files->config(),
                    .layout = &files->layout(),
                    .lora = lora.get(),
                    .micro_batch_rows = sampler->max_micro_batch_tokens(),
                    .host_bytes = options.ram ? options.ram : available_memory() + process,
                    .process_bytes = process};
  describe_device(inputs, *device, threads, options.gpu_memory);
  plan = make_train_plan(options, inputs);
}

void Trainer::Run::check_disk() const {
  const std::int64_t trained = lora ? lora->parameters() : files->layout().parameters();
  const auto checkpoint = std::uint64_t(trained) * 12;  // FP32 weights and both moments
  const std::uint64_t free = fs::space(output_dir).available;
  if (free < checkpoint)
    fail(ErrorKind::io, output_dir.string(), ": a checkpoint takes ", bytes_text(checkpoint),
         ", and there are ", bytes_text(free), " free; choose another output_dir or make room");
}

void Trainer::Run::load() {
  const bool exact = plan.numeric.precision.weights == DType::f32;
  base = std::make_unique<LayerStore>(*device, files->layout().blocks(),
                                      LayerStoreOptions{.trained = !lora, .exact = exact});
  if (lora) adapter = std::make_unique<LayerStore>(*device, block_pointers(lora_blocks), LayerStoreOptions{});
  if (options.resume_from_checkpoint.empty()) {
    load_weights(*files, *base, threads);
    if (lora) init_adapter(*lora, options.seed, *adapter);
  } else {
    resume();
  }
  slider =
      std::make_unique<Slider>(SliderParts{.config = files->config(),
                                           .layout = files->layout(),
                                           .plan = plan,
                                           .device = *device,
                                           .threads = threads,
                                           .base = *base,
                                           .lora = lora.get(),
                                           .adapter = adapter.get(),
                                           .optimizer = {.adamw = {.beta1 = float(options.adam_beta1),
                                                                   .beta2 = float(options.adam_beta2),
                                                                   .epsilon = float(options.adam_epsilon)},
                                                         .weight_decay = options.weight_decay,
                                                         .max_grad_norm = options.max_grad_norm},
                                           .lora_dropout = options.lora_dropout,
                                           .seed = options.seed});
  slider->optimizer().resume_at(step);
  train_log = std::make_unique<TrainLog>(output_dir, step, options.use_tensorboard);
  if (!train_log->lines().empty()) tokens = train_log->lines().back().tokens;
}

void Trainer::Run::resume() {
  fs::path checkpoint = options.resume_from_checkpoint;
  if (checkpoint == "auto") {
    const auto newest = newest_checkpoint(output_dir);
    if (!newest) {
      log(LogLevel::info, "no checkpoint in ", output_dir.string(), ": starting anew");
      load_weights(*files, *base, threads);
      if (lora) init_adapter(*lora, options.seed, *adapter);
      return;
    }
    checkpoint = *newest;
  }
  const TrainerState saved = load_trainer_state(checkpoint);
  const TrainerState now = state();
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::invalid_input, "cannot go on from ", checkpoint.string(), ": ", why,
         ". Start anew in another output_dir, or put the setting back");
  };
  if (const std::string d = now.numeric.difference(saved.numeric); !d.empty()) refuse(d);
  if (now.schedule != saved.schedule)
    refuse("it was trained with [" + saved.schedule + "], now [" + now.schedule + "]");
  if (now.total_steps != saved.total_steps)
    refuse("its schedule had " + std::to_string(saved.total_steps) + " steps, now " +
           std::to_string(now.total_steps));
  if (now.data_digest != saved.data_digest) refuse("the data set has changed");
  if (now.seed != saved.seed) refuse("its seed was " + std::to_string(saved.seed));
  if (lora) {
    load_weights(*files, *base, threads);
    load_adapter_weights(checkpoint, *adapter);
  } else {
    load_weights(*WeightFiles::open(checkpoint), *base, threads);
  }
  load_moments(checkpoint, trained());
  step = saved.step;
  position = saved.position;
  sampler->seek(position);
  log(LogLevel::info, "going on from ", checkpoint.string());
}

TrainerState Trainer::Run::state() const {
  return {step, steps, position, data.digest(), options.seed, schedule_text(options), plan.numeric};
}

void Trainer::Run::save(const TrainHooks& hooks) {
  slider->flush();
  const fs::path folder = checkpoint_path(output_dir, step);
  save_checkpoint(folder, state(), trained(), [&](const fs::path& into) {
    if (lora) {
      write_adapter_weights(into, *lora, *adapter);
    } else {
      write_model_weights(into, *files, *tokenizer, *base,
                          {.type = DType::f32, .shard_bytes = options.max_shard_size});
    }
  });
  remove_old_checkpoints(output_dir, options.save_total_limit);
  if (hooks.on_note) hooks.on_note("saved " + folder.string());
}

// The result lies in output_dir itself, where tools look for it. Its config comes last: a folder without one is no model.
void Trainer::Run::save_result(const TrainHooks& hooks, const std::string& config_yaml) {
  slider->flush();
  const DType type = options.save_dtype == SaveType::fp32 || (options.save_dtype == SaveType::automatic &&
                                                              files->config().torch_dtype == "float32")
                         ? DType::f32
                         : DType::bf16;
  publish_into(output_dir, lora ? "adapter_config.json" : "config.json", [&](const fs::path& into) {
    if (lora) {
      write_adapter_weights(into, *lora, *adapter);
    } else {
      write_model_weights(into, *files, *tokenizer, *base,
                          {.type = type, .shard_bytes = options.max_shard_size});
    }
    write_text_atomically(into / "slideway_config.yml", config_yaml);
  });
  train_log->draw();
  if (hooks.on_note) hooks.on_note("saved " + output_dir.string());
}

void Trainer::Run::launch() {
  auto batch = std::make_shared<const StepBatch>(sampler->next());
  tokens_under_way.push_back(batch->tokens);
  slider->launch(std::move(batch), learning_rate_at(options, launched, steps));
  position = sampler->position();
  ++launched;
}

bool Trainer::Run::save_is_due(std::int64_t after) const {
  return after == steps || (options.save_steps > 0 && after % options.save_steps == 0);
}

void Trainer::Run::finish_step(const StepResult& result, double seconds, const TrainHooks& hooks) {
  step = result.step;
  tokens += tokens_under_way.front();
  tokens_under_way.pop_front();
  if (!result.bad_block.empty() || !std::isfinite(result.loss))
    fail(ErrorKind::corrupt, "step ", step, ": the ",
         result.bad_block.empty() ? "loss is not finite"
                                  : "gradient of " + result.bad_block + " is not finite",
         ". Training stops here; the last checkpoint stands. A smaller learning_rate or a max_grad_norm may "
         "help");
  loss_sum += result.loss;
  ++loss_count;
  LogLine line{.step = step,
               .epoch = double(step) / double(sampler->steps_per_epoch()),
               .loss = result.loss,
               .learning_rate = learning_rate_at(options, step - 1, steps),
               .grad_norm = result.grad_norm,
               .tokens = tokens,
               .seconds = seconds};
  if (hooks.on_step) hooks.on_step(line, steps);
  if (step % options.logging_steps != 0 && step != steps) return;
  line.loss = loss_sum / double(loss_count);
  loss_sum = 0;
  loss_count = 0;
  train_log->add(line);
}

Trainer::Trainer(const TrainOptions& options) : run_(std::make_unique<Run>(options)) {}
Trainer::~Trainer() = default;

const TrainPlan& Trainer::plan() const {
  return run_->plan;
}

std::string Trainer::summary() const {
  const ModelConfig& config = run_->files->config();
  std::ostringstream out;
  out << config.family << ", " << config.num_layers() << " layers, " << run_->files->layout().parameters()
      << " parameters";
  if (run_->lora) out << ", of which an adapter of " << run_->lora->parameters() << " is trained";
  out << '\n' << run_->data.summary() << '\n' << run_->steps << " steps\n";
  return out.str();
}

TrainOutcome Trainer::run(const TrainHooks& hooks, const std::string& config_yaml) {
  Run& run = *run_;
  fs::create_directories(run.output_dir);
  clean_leftovers(run.output_dir);
  run.check_disk();
  write_text_atomically(run.output_dir / "slideway_config.yml", config_yaml);
  run.load();

  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  // Where streams run beside this thread, a step is launched before the one before it has been waited for, so that
  // nothing drains between the two. What is saved is the state after all that has been launched.
  const std::int64_t ahead = run.device->copies() ? 2 : 1;
  const auto stop_asked = [&] { return hooks.should_stop && hooks.should_stop(); };
  run.launched = run.step;
  while (run.step < run.steps) {
    const auto must_drain = [&] {
      return run.launched > run.step && (run.save_is_due(run.launched) || stop_asked());
    };
    while (run.launched < std::min(run.step + ahead, run.steps) && !must_drain()) run.launch();
    run.finish_step(*run.slider->wait(), seconds(), hooks);
    if (run.launched > run.step) continue;
    const bool stop = stop_asked();
    if (stop || run.save_is_due(run.step)) run.save(hooks);
    if (stop && run.step < run.steps) return TrainOutcome::interrupted;
  }
  run.save_result(hooks, config_yaml);
  if (hooks.on_note) {
    const TrainPlan& plan = run.plan;
    const std::uint64_t planned =
        plan.total(Tier::host) + plan.total(Tier::pinned) + plan.total(Tier::device);
    hooks.on_note("peak memory " + bytes_text(peak_resident_memory()) + ", planned " + bytes_text(planned));
  }
  return TrainOutcome::finished;
}

}  // namespace slideway
