#include "device/timeline.h"

#include <immintrin.h>

#include <thread>

#include "core/log.h"

namespace slideway {

using namespace std::chrono_literals;

void Patience::pause() {
  if (spins_ < 1000) {  // some 20 µs
    ++spins_;
    _mm_pause();
    return;
  }
  std::this_thread::sleep_for(20us);
  const auto now = Clock::now();
  if (next_check_ == Clock::time_point()) {
    next_check_ = now + 10ms;
    next_word_ = now + 60s;
  }
  if (now < next_check_) return;
  next_check_ = now + 10ms;
  if (check_) check_();
  if (now < next_word_) return;
  next_word_ = now + 60s;
  log(LogLevel::warning, "still waiting: ", who_());
}

void TimelineEvent::wait(std::uint64_t value) {
  Patience patience(check_, [&] {
    return "the host waits for event '" + timeline_->name() + "' to reach " + std::to_string(value) +
           " (it is at " + std::to_string(timeline_->value()) + ")";
  });
  while (!timeline_->reached(value)) patience.pause();
}

const std::shared_ptr<Timeline>& TimelineEvent::timeline_of(Event& event) {
  const auto* found = dynamic_cast<TimelineEvent*>(&event);
  CHECK(found, "an event was given to a stream of another device");
  return found->timeline_;
}

}  // namespace slideway
