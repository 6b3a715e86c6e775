// EventFile: a run's numbers as TensorBoard reads them, an event file of scalars.
//
// A file is a row of records: length, its checksum, an Event message, its checksum. A run that goes on says from which
// step, so that what an earlier file has of later steps is passed over.
//
// Threads  one at a time
// Errors   io
// Source   TensorFlow's record_writer (TFRecord) and event.proto; CRC-32C, RFC 3720
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/file.h"

namespace slideway {

class EventFile {
 public:
  // A new file in folder, which is made. first_step: the first that will be written.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  void add(std::int64_t step, std::initializer_list<std::pair<const char*, double>> scalars);

 private:
  void write_event(const std::string& body);
  File file_;
};

}  // namespace slideway
