#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "model/weights.h"

namespace slideway {
namespace {

constexpr std::size_t kPiece = 1 << 20;  // numbers converted at a time

struct SavedType {
  const char* stored;  // in safetensors
  const char* torch;   // in config.json
};

SavedType saved_type(DType type) {
  switch (type) {
    case DType::f32:
      return {"F32", "float32"};
    case DType::bf16:
      return {"BF16", "bfloat16"};
    case DType::f16:
      return {"F16", "float16"};
    default:
      fail(ErrorKind::internal, "a model is saved as f32, bf16 or f16, not as ", name_of(type));
  }
}

struct Shard {
  std::string file;
  std::vector<const TensorSpec*> tensors;
};

std::uint64_t saved_bytes(const TensorSpec& spec, DType type) {
  return std::uint64_t(spec.elements()) * bytes_of(type);
}

std::string shard_name(std::size_t number, std::size_t of) {
  if (of == 1) return "model.safetensors";
  const auto digits = [](std::size_t n) {
    const std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "model-" + digits(number) + "-of-" + digits(of) + ".safetensors";
}

// Tensors in the layout's order, a new shard where one would grow past the limit; as transformers cuts them.
std::vector<Shard> cut_shards(const ModelLayout& layout, const SaveOptions& options) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const BlockLayout* block : layout.blocks())
    for (const TensorSpec& spec : block->tensors) {
      const std::uint64_t more = saved_bytes(spec, options.type);
      if (!shards.back().tensors.empty() && bytes + more > options.shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().tensors.push_back(&spec);
      bytes += more;
    }
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i].file = shard_name(i + 1, shards.size());
  return shards;
}

// The numbers as the type's bytes. A number too large for float16 is refused rather than made infinite.
void write_numbers(SafetensorsWriter& writer, const TensorSpec& spec, std::span<const float> values,
                   DType type) {
  if (type == DType::f32) return writer.write(std::as_bytes(values));
  std::vector<std::uint16_t> narrow(std::min(kPiece, values.size()));
  for (std::size_t begin = 0; begin < values.size(); begin += kPiece) {
    const auto piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
    for (std::size_t i = 0; i < piece.size(); ++i) {
      narrow[i] = type == DType::bf16 ? to_bf16(piece[i]) : to_half(piece[i]);
      if (type == DType::f16 && (narrow[i] & 0x7fff) == 0x7c00 && std::isfinite(piece[i]))
        fail(ErrorKind::invalid_input, "the tensor ", spec.name, " holds ", piece[i], " at number ",
             begin + i, ", too large for float16; save as bfloat16 or float32");
    }
    writer.write(std::as_bytes(std::span(narrow).first(piece.size())));
  }
}

void write_shard(const fs::path& folder, const Shard& shard, const FetchTensor& fetch, DType type) {
  std::vector<SafetensorsWriter::Declared> declared;
  for (const TensorSpec* spec : shard.tensors)
    declared.push_back({spec->name, saved_type(type).stored, spec->shape});
  SafetensorsWriter writer(folder / shard.file, declared);
  for (const TensorSpec* spec : shard.tensors) {
    std::vector<float> values(std::size_t(spec->elements()));
    fetch(*spec, values);
    write_numbers(writer, *spec, values, type);
  }
  writer.close();
}

// Byte for byte the file that transformers writes.
std::string index_json(const std::vector<Shard>& shards, const ModelLayout& layout, DType type) {
  SortedJson index;
  index["metadata"]["total_parameters"] = layout.parameters();
  index["metadata"]["total_size"] = std::uint64_t(layout.parameters()) * bytes_of(type);
  for (const Shard& shard : shards)
    for (const TensorSpec* spec : shard.tensors) index["weight_map"][spec->name] = shard.file;
  return index.dump(2) + "\n";
}

// The source's own config.json where there is one, changed only in what the saved weights contradict.
std::string saved_config(const WeightFiles& source, DType type) {
  ModelConfig config = source.config();
  config.torch_dtype = saved_type(type).torch;
  if (source.is_gguf()) return config_json(config);
  const std::string text = read_text(source.path() / "config.json");
  const Json before = parse_json(text, "config.json");
  Json after = before;
  for (const char* key : {"dtype", "torch_dtype"})
    if (after.contains(key)) after[key] = config.torch_dtype;
  if (!after.contains("dtype") && !after.contains("torch_dtype")) after["torch_dtype"] = config.torch_dtype;
  if (after.value("tie_word_embeddings", false) != config.tie_word_embeddings)
    after["tie_word_embeddings"] = config.tie_word_embeddings;
  return after == before ? text : after.dump(2) + "\n";
}

// Every end token, for readers that do not ask config.json.
std::string generation_json(const ModelConfig& config) {
  Json json = Json::object();
  if (config.bos_token_id >= 0) json["bos_token_id"] = config.bos_token_id;
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids.front();
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  return json.dump(2) + "\n";
}

void carry_files(const fs::path& folder, const WeightFiles& source) {
  for (const fs::path& file : source.other_files()) {
    const fs::path target = folder / fs::relative(file, source.path());
    fs::create_directories(target.parent_path());
    std::error_code error;
    if (!fs::copy_file(file, target, error))
      fail(ErrorKind::io, target.string(), ": copying ", file.string(), " failed: ", error.message());
  }
}

void write_text(const fs::path& path, const std::string& text) {
  File file = File::create(path);
  file.write(std::string_view(text));
  file.close();
}

}  // namespace

void save_model(const std::filesystem::path& folder, const WeightFiles& source, const FetchTensor& fetch,
                const SaveOptions& options) {
  const std::vector<Shard> shards = cut_shards(source.layout(), options);
  write_folder_atomically(folder, [&](const fs::path& temporary) {
    carry_files(temporary, source);
    for (const Shard& shard : shards) write_shard(temporary, shard, fetch, options.type);
    if (shards.size() > 1)
      write_text(temporary / "model.safetensors.index.json",
                 index_json(shards, source.layout(), options.type));
    write_text(temporary / "config.json", saved_config(source, options.type));
    if (source.is_gguf()) write_text(temporary / "generation_config.json", generation_json(source.config()));
    for (const NamedText& file : options.extra_files) write_text(temporary / file.name, file.text);
  });
}

}  // namespace slideway
