// ThreadWorker: a Worker that is a real thread, working through a queue.
//
// When a closure throws, later closures and copies are passed over, but waits and signals are still done, so that
// nobody waits for a failed worker in vain. run() throws the error again, and so does synchronize(), which ends it.
// A worker that ends before its queue passes over what is left in the same way, waits too.
//
// Threads  issued to by one thread at a time
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "device/timeline.h"

namespace slideway {

class ThreadWorker final : public Worker {
 public:
  // What the device provides; empty functions are passed over.
  struct Surroundings {
    std::function<void()> begin;                                // first, on the new thread
    std::function<void(void*, const void*, std::size_t)> copy;  // done when it returns; empty: memcpy
    Patience::Check check;                                      // throws when the device has failed
  };

  ThreadWorker(std::string name, Surroundings surroundings);
  ~ThreadWorker() override;

  void run(std::function<void()> work) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void signal(Event& event, std::uint64_t value) override;
  void wait(Event& event, std::uint64_t value) override;
  void synchronize() override;

 private:
  struct Item {
    std::function<void()> work;  // or, where timeline is set, a signal or a wait
    std::shared_ptr<Timeline> timeline;
    std::uint64_t value = 0;
    bool signals = false;
  };
  void push(Item item);
  void work_through();
  void do_item(const Item& item);
  void wait_for(const Timeline& timeline, std::uint64_t value);

  const std::string name_;
  const Surroundings surroundings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;    // the front stays until it is done
  std::exception_ptr error_;  // the first
  std::atomic<bool> failed_{false}, stopping_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace slideway
