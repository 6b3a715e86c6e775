#include "serve/engine_thread.h"

#include <future>

#include "core/log.h"

namespace slideway {

struct Generation::Line {
  std::mutex mutex;
  std::vector<GenerationEvent> events;
  std::function<void()> wake;
  std::vector<RequestId> ids;  // of the engine's thread; 0: not running

  void send(std::vector<GenerationEvent>::value_type event) {
    {
      const std::lock_guard lock(mutex);
      events.push_back(std::move(event));
      if (events.size() > 1) return;  // it has been woken and has not come yet
    }
    wake();
  }
};

Generation::~Generation() {
  thread_.post([&thread = thread_, line = line_](Engine&) {
    for (std::size_t i = 0; i < line->ids.size(); ++i) thread.cancel(line, i);
  });
}

void Generation::take(std::vector<GenerationEvent>& out) {
  out.clear();
  const std::lock_guard lock(line_->mutex);
  out.swap(line_->events);
}

void Generation::cancel(std::size_t sequence) {
  thread_.post([&thread = thread_, line = line_, sequence](Engine&) { thread.cancel(line, sequence); });
}

EngineThread::EngineThread(Engine& engine) : engine_(engine), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::unique_ptr<Generation> EngineThread::generate(std::vector<Request> requests, const std::string& adapter,
                                                   std::function<void()> wake) {
  std::unique_ptr<Generation> generation(new Generation(*this));
  auto line = std::make_shared<Generation::Line>();
  line->wake = std::move(wake);
  line->ids.resize(requests.size());
  generation->line_ = line;
  // std::function wants to be copied.
  auto shared = std::make_shared<std::vector<Request>>(std::move(requests));
  post([this, line, shared, adapter](Engine&) {
    for (std::size_t i = 0; i < shared->size(); ++i) add({line, i, adapter}, std::move((*shared)[i]));
  });
  return generation;
}

void EngineThread::post(std::function<void(Engine&)> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void EngineThread::call(const std::function<void(Engine&)>& work) {
  std::promise<void> done;
  post([&](Engine& engine) {
    work(engine);
    done.set_value();
  });
  done.get_future().wait();
}

bool EngineThread::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void EngineThread::run() {
  note_status();
  while (wait_for_work()) {
    step();
    note_status();
  }
}

void EngineThread::note_status() {
  const BlockPool& pool = engine_.cache().pool();
  EngineStatus status{.blocks = pool.size(),
                      .free_blocks = pool.free(),
                      .block_bytes = engine_.cache().shape().page_bytes,
                      .tokens = tokens_,
                      .preemptions = engine_.preemptions()};
  for (const auto& [id, slot] : slots_) {
    const bool running = slot.started && engine_.running(id);
    ++(running ? status.running : status.waiting);
    if (!slot.adapter.empty())
      (running ? status.running_adapters : status.waiting_adapters).insert(slot.adapter);
  }
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

EngineStatus EngineThread::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

// Does what was posted; false when the thread is to end.
bool EngineThread::wait_for_work() {
  std::vector<std::function<void(Engine&)>> work;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !work_.empty() || !engine_.idle(); });
    work.swap(work_);
    if (stopping_ && work.empty()) return false;
  }
  for (const auto& item : work) item(engine_);
  return true;
}

void EngineThread::step() {
  if (engine_.idle() || failed_) return;
  try {
    for (const TokenEvent& event : engine_.step()) {
      const auto found = slots_.find(event.request);
      if (found == slots_.end()) continue;
      found->second.started = true;
      if (event.token >= 0) ++tokens_;
      const Slot slot = found->second;
      if (event.finish) {
        slots_.erase(found);
        slot.line->ids[slot.sequence] = 0;
      }
      slot.line->send({.sequence = slot.sequence, .event = event});
    }
  } catch (const Error& error) {
    fail_all(error);
  }
}

void EngineThread::add(Slot slot, Request request) {
  const auto refuse = [&](ErrorKind kind, const std::string& why) {
    TokenEvent event{.finish = FinishReason::error, .error = why};
    slot.line->send({.sequence = slot.sequence, .event = std::move(event), .kind = kind});
  };
  if (failed_) return refuse(ErrorKind::device, "the device has failed");
  try {
    const RequestId id = engine_.add(std::move(request));
    slot.line->ids[slot.sequence] = id;
    slots_.emplace(id, slot);
  } catch (const Error& error) {
    refuse(error.kind(), error.what());
  }
}

void EngineThread::cancel(const std::shared_ptr<Generation::Line>& line, std::size_t sequence) {
  const RequestId id = std::exchange(line->ids[sequence], 0);
  if (id == 0) return;
  slots_.erase(id);
  engine_.cancel(id);
}

void EngineThread::fail_all(const Error& error) {
  log(LogLevel::error, "the engine has stopped: ", error.what());
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
  }
  for (const auto& [id, slot] : slots_) {
    engine_.cancel(id);
    slot.line->ids[slot.sequence] = 0;
    TokenEvent event{.request = id, .finish = FinishReason::error, .error = "the device has failed"};
    slot.line->send({.sequence = slot.sequence, .event = std::move(event), .kind = ErrorKind::device});
  }
  slots_.clear();
}

}  // namespace slideway
