// Any text as config.json, or any GGUF file as a model: refused with an error, or a config that is written and read
// back as itself. Text after a 0 byte is generation_config.json.
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "fuzzed_file.h"
#include "model/weights.h"

namespace slideway {
namespace {

const std::filesystem::path& folder() {
  static const std::filesystem::path made = [] {
    std::string name = "/dev/shm/slideway-fuzz-XXXXXX";
    CHECK(::mkdtemp(name.data()) != nullptr);
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return std::filesystem::path(name);
  }();
  return made;
}

void write(const char* name, std::string_view text) {
  std::ofstream(folder() / name, std::ios::binary | std::ios::trunc) << text;
}

void check_written(const ModelConfig& config) {
  const std::string text = config_json(config);
  write("config.json", text);
  write("generation_config.json", "{}");
  CHECK(config_json(load_config(folder())) == text, text);
}

void try_folder(std::string_view text) {
  const auto end = text.find('\0');
  write("config.json", text.substr(0, end));
  write("generation_config.json", end == text.npos ? "{}" : text.substr(end + 1));
  const ModelConfig config = load_config(folder());
  if (config.num_layers() <= 64) make_layout(config);
  check_written(config);
}

void try_gguf(const FuzzedFile& input) {
  const GgufFile file(input.path());
  check_written(load_config(file));
}

}  // namespace
}  // namespace slideway

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slideway;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const FuzzedFile input(data, size);
  expect_answer([&] {
    if (text.starts_with("GGUF"))
      try_gguf(input);
    else
      try_folder(text);
  });
  return 0;
}
