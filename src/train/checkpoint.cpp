#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "formats/safetensors.h"
#include "train/manifest.h"

namespace slideway {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kStateName = "trainer_state.json";
constexpr const char* kMomentsName = "optimizer.safetensors";
constexpr const char* kPrefix = "checkpoint-";

void write_moments(const fs::path& path, const LayerStore& store) {
  std::vector<SafetensorsWriter::Declared> declared;
  for (int b = 0; b < store.count(); ++b)
    for (const TensorSpec& tensor : store.block(b).layout->tensors) {
      declared.push_back({tensor.name + ".exp_avg", "F32", tensor.shape});
      declared.push_back({tensor.name + ".exp_avg_sq", "F32", tensor.shape});
    }
  SafetensorsWriter writer(path, std::move(declared));
  for (int b = 0; b < store.count(); ++b) {
    const LayerStore::Block& block = store.block(b);
    for (const TensorSpec& tensor : block.layout->tensors)
      for (const float* moment : {block.m, block.v})
        writer.write(std::as_bytes(std::span(moment + tensor.offset, std::size_t(tensor.elements()))));
  }
  writer.close();
}

std::int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::string_view digits =
      std::string_view(name).substr(std::min(name.size(), std::string(kPrefix).size()));
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return name.starts_with(kPrefix) && error == std::errc() && end == digits.data() + digits.size() ? step
                                                                                                   : -1;
}

// Newest first.
std::vector<fs::path> checkpoints(const fs::path& output_dir) {
  std::vector<fs::path> found;
  if (!fs::is_directory(output_dir)) return found;
  for (const auto& entry : fs::directory_iterator(output_dir))
    if (entry.is_directory() && step_of(entry.path()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  return found;
}

}  // namespace

void save_checkpoint(const fs::path& folder, const TrainerState& state, const LayerStore& store,
                     const WriteWeights& write_weights) {
  write_folder_atomically(folder, [&](const fs::path& temporary) {
    write_weights(temporary);
    write_moments(temporary / kMomentsName, store);
    const Json json{{"version", 1},
                    {"step", state.step},
                    {"total_steps", state.total_steps},
                    {"epoch", state.position.epoch},
                    {"unit_of_epoch", state.position.unit},
                    {"data_digest", state.data_digest},
                    {"seed", state.seed},
                    {"schedule", state.schedule},
                    {"numeric_plan", Json::parse(state.numeric.to_json())}};
    write_text_atomically(temporary / kStateName, json.dump(2) + "\n");
    write_manifest(temporary);
  });
}

TrainerState load_trainer_state(const fs::path& checkpoint) {
  const std::string fault = manifest_fault(checkpoint, true);
  if (!fault.empty()) fail(ErrorKind::corrupt, checkpoint.string(), " is not a whole checkpoint: ", fault);
  const fs::path path = checkpoint / kStateName;
  try {
    const Json json = Json::parse(read_text(path));
    TrainerState state;
    json.at("step").get_to(state.step);
    json.at("total_steps").get_to(state.total_steps);
    json.at("epoch").get_to(state.position.epoch);
    json.at("unit_of_epoch").get_to(state.position.unit);
    json.at("data_digest").get_to(state.data_digest);
    json.at("seed").get_to(state.seed);
    json.at("schedule").get_to(state.schedule);
    state.numeric = NumericPlan::from_json(json.at("numeric_plan").dump(), path.string());
    return state;
  } catch (const Json::exception& error) {
    fail(ErrorKind::corrupt, path.string(), ": ", error.what());
  }
}

void load_moments(const fs::path& checkpoint, LayerStore& store) {
  const SafetensorsFile file(checkpoint / kMomentsName);
  for (int b = 0; b < store.count(); ++b) {
    const LayerStore::Block& block = store.block(b);
    for (const TensorSpec& tensor : block.layout->tensors)
      for (const auto& [suffix, moment] :
           {std::pair(".exp_avg", block.m), std::pair(".exp_avg_sq", block.v)}) {
        const SafetensorsEntry* entry = file.find(tensor.name + suffix);
        if (!entry) fail(ErrorKind::corrupt, file.path().string(), " lacks ", tensor.name, suffix);
        if (entry->shape != tensor.shape)
          fail(ErrorKind::corrupt, file.path().string(), ": ", entry->name, " is ", shape_text(entry->shape),
               ", the model's is ", shape_text(tensor.shape));
        file.read_f32(*entry, std::span(moment + tensor.offset, std::size_t(tensor.elements())));
      }
  }
}

fs::path checkpoint_path(const fs::path& output_dir, std::int64_t step) {
  return output_dir / (kPrefix + std::to_string(step));
}

std::optional<fs::path> newest_checkpoint(const fs::path& output_dir) {
  for (const fs::path& folder : checkpoints(output_dir)) {
    const std::string fault = manifest_fault(folder, true);
    if (fault.empty()) return folder;
    log(LogLevel::warning, "passing over ", folder.string(), ": ", fault);
  }
  return std::nullopt;
}

void remove_old_checkpoints(const fs::path& output_dir, int keep) {
  if (keep <= 0) return;
  const std::vector<fs::path> found = checkpoints(output_dir);
  for (std::size_t i = std::size_t(keep); i < found.size(); ++i) fs::remove_all(found[i]);
}

}  // namespace slideway
