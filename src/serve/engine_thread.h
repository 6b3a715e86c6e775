// EngineThread: the engine on a thread of its own. Requests go in from any thread; their tokens come out as each
// client takes them.
//
//   auto generation = thread.generate(std::move(requests), wake);   // wake is called when there is something to take
//   generation->take(events);
//   generation.reset();                                             // whatever of it still runs is cancelled
//
// Owns     nothing but its thread; the engine must outlive it
// Threads  any
// Errors   a request that the engine refuses ends with FinishReason::error and the refusal's kind; after a device error
//          every request does
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "serve/engine.h"

namespace slideway {

struct GenerationEvent {
  std::size_t sequence = 0;  // of those that were given to generate
  TokenEvent event;
  ErrorKind kind = ErrorKind::internal;  // where event.finish is an error
};

// What the engine is doing, as of its last step.
struct EngineStatus {
  std::int64_t running = 0, waiting = 0;  // sequences: with a token already; not yet, or preempted
  std::int64_t blocks = 0, free_blocks = 0;
  std::uint64_t block_bytes = 0;
  std::int64_t tokens = 0, preemptions = 0;  // since the start
  std::set<std::string> running_adapters, waiting_adapters;
};

class EngineThread;

// Sequences that belong together: all choices of one request.
class Generation {
 public:
  ~Generation();
  void take(std::vector<GenerationEvent>& out);  // replaces out
  void cancel(std::size_t sequence);             // no more of it is wanted

 private:
  friend class EngineThread;
  struct Line;
  explicit Generation(EngineThread& thread) : thread_(thread) {}
  EngineThread& thread_;
  std::shared_ptr<Line> line_;
};

class EngineThread {
 public:
  explicit EngineThread(Engine& engine);
  ~EngineThread();

  // adapter: its name, for the status; empty: the base model.
  std::unique_ptr<Generation> generate(std::vector<Request> requests, const std::string& adapter,
                                       std::function<void()> wake);
  EngineStatus status() const;
  // Runs between two steps.
  void post(std::function<void(Engine&)> work);
  // As post, and waits for it.
  void call(const std::function<void(Engine&)>& work);
  bool failed() const;  // the device has; nothing will be served any more

 private:
  friend class Generation;
  struct Slot {
    std::shared_ptr<Generation::Line> line;
    std::size_t sequence = 0;
    std::string adapter = {};
    bool started = false;
  };
  void note_status();
  void run();
  bool wait_for_work();
  void step();
  void add(Slot slot, Request request);
  void cancel(const std::shared_ptr<Generation::Line>& line, std::size_t sequence);
  void fail_all(const Error& error);

  Engine& engine_;
  std::map<RequestId, Slot> slots_;  // of the engine's thread, as is
  std::int64_t tokens_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void(Engine&)>> work_;
  EngineStatus status_;
  bool stopping_ = false, failed_ = false;
  std::thread thread_;
};

}  // namespace slideway
