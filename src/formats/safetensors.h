// Safetensors: an 8-byte header length, a JSON header, then the tensors' bytes.
//
// Opening reads the header only and checks it whole: lengths, overlaps, gaps, shapes against byte ranges, duplicate
// names. A writer streams tensors in the order declared, so that a file of any size needs the memory of one piece.
//
// Threads  const calls from any number of threads; a writer is one at a time
// Errors   not_found, corrupt (what, where), unsupported (dtype), io
// Source   the safetensors format description (Hugging Face)
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/file.h"
#include "tensor/tensor.h"

namespace slideway {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as in the file: "F32", "BF16", "F16", "I64", "U8", …
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  std::int64_t elements() const;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // ascending offsets
  const SafetensorsEntry* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  void drop(const SafetensorsEntry& entry) const;  // its bytes will not be read again soon
  // Exact widening of F32, BF16, F16. out: entry.elements() numbers. Lets the pages go.
  void read_f32(const SafetensorsEntry& entry, std::span<float> out) const;
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string, std::size_t> index_;  // into entries_, by name
};

std::uint64_t safetensors_bytes(const std::string& dtype);  // of one number; unsupported for unknown types

class SafetensorsWriter {
 public:
  struct Declared {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
  };
  // Writes the header at once; the tensors follow by write(), in this order. Names are distinct. A type that is
  // wider than an earlier one should come first, so that its numbers lie on multiples of their size.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Declared> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  void write(std::span<const std::byte> bytes);  // the next bytes, across tensor borders if need be
  void close();                                  // checks that all declared bytes came, syncs

 private:
  File file_;
  std::uint64_t expected_ = 0, written_ = 0;
};

}  // namespace slideway
