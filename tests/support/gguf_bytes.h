// GgufBytes: a GGUF file put together key by key, as right or as wrong as a test wants it.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace slideway {

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <class T>
std::string raw_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::string raw_floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline std::string gguf_string(const std::string& text) {
  return raw_bytes(std::uint64_t(text.size())) + text;
}

class GgufBytes {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::uint64_t extra_tensors = 0, extra_keys = 0;  // announced but not there

  // value: what follows the type number
  GgufBytes& key(const std::string& name, std::uint32_t type, const std::string& value) {
    keys_ += gguf_string(name) + raw_bytes(type) + value;
    ++key_count_;
    return *this;
  }
  GgufBytes& text(const std::string& name, const std::string& value) {
    return key(name, 8, gguf_string(value));
  }
  GgufBytes& u32(const std::string& name, std::uint32_t value) { return key(name, 4, raw_bytes(value)); }
  GgufBytes& f32(const std::string& name, float value) { return key(name, 6, raw_bytes(value)); }

  // shape row-major; the data go to the next free place unless offset says otherwise.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                    const std::string& data, std::int64_t offset = -1) {
    while (data_.size() % alignment) data_ += '\0';
    tensors_ += gguf_string(name) + raw_bytes(std::uint32_t(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += raw_bytes(*size);
    tensors_ += raw_bytes(type) + raw_bytes(offset < 0 ? std::uint64_t(data_.size()) : std::uint64_t(offset));
    data_ += data;
    ++tensor_count_;
    return *this;
  }
  GgufBytes& floats(const std::string& name, const std::vector<std::uint64_t>& shape,
                    const std::vector<float>& values) {
    return tensor(name, shape, 0, raw_floats(values));
  }

  std::string bytes() const {
    std::string out = "GGUF" + raw_bytes(version) + raw_bytes(tensor_count_ + extra_tensors) +
                      raw_bytes(key_count_ + extra_keys) + keys_ + tensors_;
    while (out.size() % alignment) out += '\0';
    return out + data_;
  }
  void write(const std::filesystem::path& path) const { write_file(path, bytes()); }

 private:
  std::string keys_, tensors_, data_;
  std::uint64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace slideway
