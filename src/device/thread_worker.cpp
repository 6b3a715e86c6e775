#include "device/thread_worker.h"

#include <cstring>
#include <utility>

namespace slideway {

ThreadWorker::ThreadWorker(std::string name, Surroundings surroundings)
    : name_(std::move(name)), surroundings_(std::move(surroundings)), thread_([this] { work_through(); }) {}

ThreadWorker::~ThreadWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ThreadWorker::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_all();
}

void ThreadWorker::run(std::function<void()> work) {
  if (failed_) {
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(error_);
  }
  push({.work = std::move(work)});
}

void ThreadWorker::copy(void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  push({.work = [=, this] {
    if (surroundings_.copy) {
      surroundings_.copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }});
}

void ThreadWorker::signal(Event& event, std::uint64_t value) {
  push({.timeline = TimelineEvent::timeline_of(event), .value = value, .signals = true});
}

void ThreadWorker::wait(Event& event, std::uint64_t value) {
  push({.timeline = TimelineEvent::timeline_of(event), .value = value});
}

void ThreadWorker::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty(); });
  failed_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadWorker::wait_for(const Timeline& timeline, std::uint64_t value) {
  Patience patience(surroundings_.check, [&] {
    return "worker '" + name_ + "' waits for event '" + timeline.name() + "' to reach " +
           std::to_string(value) + " (it is at " + std::to_string(timeline.value()) + ")";
  });
  while (!timeline.reached(value) && !stopping_) patience.pause();
}

void ThreadWorker::do_item(const Item& item) try {
  if (item.timeline && item.signals) {
    item.timeline->raise(item.value);
  } else if (item.timeline) {
    wait_for(*item.timeline, item.value);
  } else if (!failed_ && !stopping_) {
    item.work();
  }
} catch (...) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::current_exception();
  failed_ = true;
}

void ThreadWorker::work_through() {
  if (surroundings_.begin) do_item({.work = surroundings_.begin});
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return stopping_ || !items_.empty(); });
    if (items_.empty()) return;
    const Item& item = items_.front();  // a deque's items stay where they are while others are pushed
    lock.unlock();
    do_item(item);
    lock.lock();
    items_.pop_front();
    if (items_.empty()) changed_.notify_all();
  }
}

}  // namespace slideway
