// GGUF: one mapped file with metadata and tensors, versions 2 and 3, little-endian.
//
// Opening reads the header only. Every offset and length is checked against the file before use.
//
// Owns     the mapping
// Threads  const calls from any number of threads
// Errors   not_found, corrupt (what, at which offset), unsupported (version, tensor type)
// Source   ggml's GGUF specification; block formats in docs/formats.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/file.h"

namespace slideway {

// Arrays of numbers are widened: integers and booleans to i64, floats to f64.
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string,
                               std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // row-major: the last axis is contiguous (GGUF's own order reversed)
  int type = 0;                     // ggml type number
  std::uint64_t offset = 0;         // from the start of the file
  std::uint64_t bytes = 0;
  std::int64_t elements() const;
};

class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const GgufValue* find(const std::string& key) const;  // null when absent
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  // As find, but absent or of another type is an error that names the key. Integers convert among each other when the
  // value fits.
  std::string text(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(const std::string& name) const;
  // Dequantises rows [first, first + out.size() / row) of a tensor; row = its last axis. Lets the pages go.
  void read_rows(const GgufTensor& tensor, std::int64_t first, std::span<float> out) const;

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  const GgufValue& at(const std::string& key) const;

  MappedFile file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;  // into tensors_, by name
};

std::string gguf_type_name(int type);  // "Q4_1"; unsupported for unknown numbers
bool gguf_type_is_read(int type);      // false for types that are known by name and size only
// One row of n numbers; n is a multiple of the type's block, else corrupt.
std::uint64_t gguf_row_bytes(int type, std::int64_t n);
// Whole blocks, out.size() numbers. Values equal the reference's bit for bit.
void dequantize(int type, std::span<const std::byte> from, std::span<float> out);

}  // namespace slideway
