// Rows of a data set, before tokens: lines of JSONL files (or elements of a JSON array), told apart by their keys.
//
// Errors   invalid_input: file, physical line and byte offset
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace slideway {

struct DataRow {
  enum class Kind { text, completion, messages } kind = Kind::text;
  std::string text;  // text, or the prompt
  std::string completion;
  std::string messages;  // a JSON array, as written
  std::string tools;     // a JSON array, or empty
  std::string where;     // "file:line", for messages
};

// Every row of the file in order. A byte-order mark, blank lines and CRLF are passed over.
void read_rows(const std::filesystem::path& path, const std::function<void(DataRow&&)>& row);

}  // namespace slideway
