// Budget: the bytes of one tier of memory, reserved by purpose before anything is taken.
//
// The same reservations are made by a forecast (slideway train --dry-run) and by the run itself, so that the two
// cannot drift apart. A Reservation gives its bytes back when it ends.
//
// Units    bytes
// Threads  one at a time
// Errors   out_of_memory when the limit would be passed: what was asked, by whom, what is taken, what is left
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slideway {

enum class Tier { device, pinned, host, disk };
std::string name_of(Tier tier);

// What a room needs before it starts.
struct Demand {
  Tier tier;
  std::string purpose;  // "weight slots", "gradients", …
  std::uint64_t bytes;
};

class Budget {
 public:
  static constexpr std::uint64_t kUnlimited = ~std::uint64_t(0);

  Budget(Tier tier, std::uint64_t limit) : tier_(tier), limit_(limit) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation();
    std::uint64_t bytes() const { return bytes_; }

   private:
    friend class Budget;
    Reservation(Budget* from, std::string purpose, std::uint64_t bytes);
    Budget* from_ = nullptr;
    std::string purpose_;
    std::uint64_t bytes_ = 0;
  };

  Reservation reserve(const std::string& purpose, std::uint64_t bytes);

  struct Line {
    std::string purpose;
    std::uint64_t bytes;
  };
  const std::vector<Line>& lines() const { return lines_; }  // what is taken, in order of first reservation
  std::uint64_t taken() const;
  std::uint64_t limit() const { return limit_; }
  Tier tier() const { return tier_; }

 private:
  void give_back(const std::string& purpose, std::uint64_t bytes);
  Tier tier_;
  std::uint64_t limit_;
  std::vector<Line> lines_;
};

// "1.50 GiB", "640 MiB", "3.00 KiB": for people, to three digits.
std::string bytes_text(std::uint64_t bytes);
// "24GiB", "24 GB", "512M", "1.5TiB", "1048576" → bytes. GiB and G are 1024³, GB is 1000³; capitals do not matter.
// Errors: invalid_input, naming the text.
std::uint64_t parse_bytes(const std::string& text);

}  // namespace slideway
