// Any text as adapter_config.json and, after a 0 byte, any bytes as adapter_model.safetensors: refused with an error, or
// an adapter that fits the model and a config that is written and read back as itself.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzzed_file.h"
#include "lora/adapter.h"
#include "lora/small_model.h"

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

void write(const char* name, std::string_view bytes) {
  std::ofstream(folder() / name, std::ios::binary | std::ios::trunc) << bytes;
}

void try_adapter(std::string_view bytes) {
  const auto end = bytes.find('\0');
  write("adapter_config.json", bytes.substr(0, end));
  write("adapter_model.safetensors", end == bytes.npos ? "" : bytes.substr(end + 1));
  const AdapterConfig config = load_adapter_config(folder());
  const std::string text = adapter_config_json(config);
  CHECK(adapter_config_json(parse_adapter_config(text, "written")) == text, text);

  static const ModelLayout layout = make_layout(small_config());
  const Adapter adapter = load_adapter(folder(), layout, [](const TensorSpec&, std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.5f);
  });
  CHECK(!adapter.modules().empty() || adapter.embedding() || adapter.head());
  CHECK(adapter.digest().size() == 64);
  for (const AdapterModule& module : adapter.modules()) {
    if (module.layer < 0 || !module.b) continue;
    const TensorSpec* spec = layout.layers[std::size_t(module.layer)].find(module.role);
    CHECK(module.a.size(1) == spec->shape[1] && module.b.size(0) == spec->shape[0]);
    CHECK(module.a.size(0) == module.b.size(1) && module.rank() >= 1);
  }
}

}  // namespace
}  // namespace slideway

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slideway;
  expect_answer([&] { try_adapter({reinterpret_cast<const char*>(data), size}); });
  return 0;
}
