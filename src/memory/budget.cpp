#include "memory/budget.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace slideway {

std::string name_of(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::pinned:
      return "pinned";
    case Tier::host:
      return "host";
    case Tier::disk:
      return "disk";
  }
  fail(ErrorKind::internal, "name_of: no such tier: ", int(tier));
}

Budget::Reservation::Reservation(Budget* from, std::string purpose, std::uint64_t bytes)
    : from_(from), purpose_(std::move(purpose)), bytes_(bytes) {}

Budget::Reservation::Reservation(Reservation&& other) noexcept
    : from_(std::exchange(other.from_, nullptr)),
      purpose_(std::move(other.purpose_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Budget::Reservation& Budget::Reservation::operator=(Reservation&& other) noexcept {
  Reservation taken(std::move(other));
  std::swap(from_, taken.from_);
  std::swap(purpose_, taken.purpose_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

Budget::Reservation::~Reservation() {
  if (from_) from_->give_back(purpose_, bytes_);
}

std::uint64_t Budget::taken() const {
  std::uint64_t sum = 0;
  for (const Line& line : lines_) sum += line.bytes;
  return sum;
}

Budget::Reservation Budget::reserve(const std::string& purpose, std::uint64_t bytes) {
  const std::uint64_t before = taken();
  if (bytes > limit_ - before) {
    std::string others;
    for (const Line& line : lines_)
      others += (others.empty() ? "" : ", ") + line.purpose + " " + bytes_text(line.bytes);
    fail(ErrorKind::out_of_memory, name_of(tier_), " memory: ", purpose, " needs ", bytes_text(bytes), " (",
         bytes, " bytes), but of the limit of ", bytes_text(limit_), " only ", bytes_text(limit_ - before),
         " (", limit_ - before, " bytes) are left", others.empty() ? "" : ". Taken: ", others);
  }
  const auto line =
      std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.purpose == purpose; });
  if (line != lines_.end()) {
    line->bytes += bytes;
  } else {
    lines_.push_back({purpose, bytes});
  }
  return {this, purpose, bytes};
}

void Budget::give_back(const std::string& purpose, std::uint64_t bytes) {
  const auto line =
      std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.purpose == purpose; });
  if (line == lines_.end()) return;
  line->bytes -= bytes;
  if (line->bytes == 0) lines_.erase(line);
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == Budget::kUnlimited) return "unlimited";
  if (bytes < 1024) return std::to_string(bytes) + " B";
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = double(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1023.5; size /= 1024) ++unit;  // what would be written as 1024 is one of the next
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, size, kUnits[unit]);
  return text;
}

namespace {

// What a unit stands for; 0 when there is no such unit.
double unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  const auto power = std::string_view("kmgtp").find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = unit.substr(1);
  if (rest == "b") return std::pow(1000.0, double(power + 1));
  return rest.empty() || rest == "ib" || rest == "i" ? std::pow(1024.0, double(power + 1)) : 0;
}

}  // namespace

std::uint64_t parse_bytes(const std::string& text) {
  std::string lower;
  for (const char c : text) {
    if (c != ' ') lower += char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  const char* const end = lower.data() + lower.size();
  std::uint64_t whole = 0;
  if (const auto read = std::from_chars(lower.data(), end, whole); read.ec == std::errc() && read.ptr == end)
    return whole;
  double number = 0;
  const auto read = std::from_chars(lower.data(), end, number, std::chars_format::fixed);
  const double unit = read.ec == std::errc() ? unit_bytes({read.ptr, std::size_t(end - read.ptr)}) : 0;
  if (unit == 0 || !(number >= 0) || number * unit >= 0x1p64) {
    fail(ErrorKind::invalid_input, "'", text,
         "' is not a number of bytes: expected something like 24GiB, 512M, 1.5 TB or 1048576");
  }
  return std::uint64_t(number * unit);
}

}  // namespace slideway
