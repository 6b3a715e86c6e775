// Any bytes as a safetensors file: refused with an error, or every tensor can be read.
#include <vector>

#include "formats/safetensors.h"
#include "fuzzed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slideway;
  const FuzzedFile input(data, size);
  expect_answer([&] {
    const SafetensorsFile file(input.path());
    for (const SafetensorsEntry& entry : file.entries()) {
      CHECK(file.find(entry.name) == &entry);
      if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16") continue;
      std::vector<float> values(std::size_t(entry.elements()));
      file.read_f32(entry, values);
    }
  });
  return 0;
}
