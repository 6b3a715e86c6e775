#include "train/event_file.h"

#include <immintrin.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <iomanip>
#include <sstream>

namespace slideway {
namespace {

// Fields of the messages, as event.proto numbers them.
enum class Event { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7 };
enum class Summary { value = 1 };
enum class Value { tag = 1, simple_value = 2 };
enum class SessionLog { status = 1 };
constexpr std::uint64_t kSessionStart = 1;

// How a field lies in a message.
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += char(value | 128);
  return out + char(value);
}

template <class Field>
std::string key(Field field, Wire wire) {
  return varint(std::uint64_t(field) << 3 | wire);
}

template <class Word>
std::string little_endian(Word word) {
  std::string out(sizeof word, '\0');
  std::memcpy(out.data(), &word, sizeof word);
  return out;
}

template <class Field>
std::string field(Field name, const std::string& bytes) {
  return key(name, kBytes) + varint(bytes.size()) + bytes;
}

std::uint32_t masked_crc(const std::string& bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(byte));
  crc = ~crc;
  return std::rotr(crc, 15) + 0xA282EAD8u;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

File new_file(const fs::path& folder) {
  fs::create_directories(folder);
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  std::ostringstream name;
  name << "events.out.tfevents." << std::setw(10) << std::setfill('0') << std::int64_t(seconds_now()) << '.'
       << host << '.' << getpid();
  return File::create(folder / name.str());
}

}  // namespace

EventFile::EventFile(const fs::path& folder, std::int64_t first_step) : file_(new_file(folder)) {
  write_event(field(Event::file_version, "brain.Event:2"));
  if (first_step > 1)
    write_event(key(Event::step, kVarint) + varint(std::uint64_t(first_step)) +
                field(Event::session_log, key(SessionLog::status, kVarint) + varint(kSessionStart)));
}

void EventFile::add(std::int64_t step, std::initializer_list<std::pair<const char*, double>> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += field(Summary::value, field(Value::tag, tag) + key(Value::simple_value, kFixed32) +
                                         little_endian(float(value)));
  write_event(key(Event::step, kVarint) + varint(std::uint64_t(step)) + field(Event::summary, summary));
}

void EventFile::write_event(const std::string& body) {
  const std::string event = key(Event::wall_time, kFixed64) + little_endian(seconds_now()) + body;
  const std::string length = little_endian(std::uint64_t(event.size()));
  file_.write(length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event)));
}

}  // namespace slideway
