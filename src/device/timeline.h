// Timeline: an event's counter, a 64-bit word that only grows; and what it takes to wait for it on a host thread.
//
// The word may be raised by the host or, lying in pinned memory, by a device. Whatever is issued holds the Timeline, so
// that an Event may end before it. Everything waited for is below kReleased; a word raised to it lets everybody through,
// which a device does when it is abandoned with work that would never end.
//
// Threads  any
// Errors   internal for a signal that does not grow; waiting passes on what check throws
#pragma once

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/device.h"

namespace slideway {

class Timeline {
 public:
  static constexpr std::uint64_t kReleased = std::uint64_t(1) << 62;  // devices compare as signed numbers

  explicit Timeline(std::string name) : name_(std::move(name)), word_(&own_) {}
  // word: zero, and longer-lived than the Timeline; device_address: where a device finds it
  Timeline(std::string name, std::uint64_t* word, std::uint64_t device_address)
      : name_(std::move(name)), word_(word), device_address_(device_address) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  std::uint64_t value() const { return std::atomic_ref(*word_).load(std::memory_order_acquire); }
  bool reached(std::uint64_t wanted) const { return value() >= wanted; }
  void raise(std::uint64_t to) {
    const std::uint64_t before = value();
    if (before >= kReleased) return;
    CHECK(before < to, "event '", name_, "' was signalled with ", to, " after ", before,
          ": it may only grow");
    _mm_sfence();  // a device that sees the word must also see what was written past the caches
    std::atomic_ref(*word_).store(to, std::memory_order_release);
  }

  const std::string& name() const { return name_; }
  std::uint64_t* word() const { return word_; }
  std::uint64_t device_address() const { return device_address_; }

 private:
  std::string name_;
  std::uint64_t own_ = 0;
  std::uint64_t* word_;
  std::uint64_t device_address_ = 0;
};

// One thread's waiting for something that others do: spins for some microseconds, then sleeps in short turns. Calls
// check now and then, which throws when what is waited for can no longer come; says once a minute who still waits.
class Patience {
 public:
  using Check = std::function<void()>;
  using Who = std::function<std::string()>;
  Patience(const Check& check, Who who) : check_(check), who_(std::move(who)) {}
  void pause();

 private:
  using Clock = std::chrono::steady_clock;
  const Check& check_;
  Who who_;
  int spins_ = 0;
  Clock::time_point next_check_{}, next_word_{};
};

// An event over a timeline that other threads or a device raise.
class TimelineEvent final : public Event {
 public:
  TimelineEvent(std::shared_ptr<Timeline> timeline, Patience::Check check)
      : timeline_(std::move(timeline)), check_(std::move(check)) {}
  void signal(std::uint64_t value) override { timeline_->raise(value); }
  void wait(std::uint64_t value) override;
  bool reached(std::uint64_t value) const override { return timeline_->reached(value); }

  static const std::shared_ptr<Timeline>& timeline_of(Event& event);  // internal if it is of another device

 private:
  std::shared_ptr<Timeline> timeline_;
  Patience::Check check_;
};

}  // namespace slideway
