// Runs a harness on every file of the folders given, where libFuzzer is not built in.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* count,
                                                          char*** arguments);  // a harness may have one

int main(int count, char** folders) {
  if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&count, &folders);
  int files = 0;
  for (int i = 1; i < count; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(folders[i])) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++files;
    }
  std::printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}
