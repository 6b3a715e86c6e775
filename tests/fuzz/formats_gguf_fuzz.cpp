// Any bytes as a GGUF file: refused with an error, or every tensor of a known type can be read.
#include <vector>

#include "formats/gguf.h"
#include "fuzzed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slideway;
  const FuzzedFile input(data, size);
  expect_answer([&] {
    const GgufFile file(input.path());
    for (const GgufTensor& tensor : file.tensors()) {
      CHECK(file.find_tensor(tensor.name) == &tensor);
      if (!gguf_type_is_read(tensor.type)) continue;
      std::vector<float> values(std::size_t(tensor.elements()));
      file.read_rows(tensor, 0, values);
    }
  });
  return 0;
}
