#include "core/threads.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace slideway {

// A job is offered through a gate: open while there may be pieces left, with a count of the workers inside. A
// worker that wakes too late finds the gate closed and never delays the caller, who waits only for those
// inside.
struct Threads::Pool {
  static constexpr std::uint32_t kOpen = 1u << 31;
  static constexpr int kSpins =
      1000;  // some 20 µs: longer than the gap between two kernels, shorter than a wake

  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::atomic<std::uint32_t> gate{0};
  alignas(64) std::atomic<std::uint32_t> job{0};  // number of the last job; workers sleep on it
  std::atomic<bool> stopping{false};
  std::int64_t pieces = 0;
  const std::function<void(std::int64_t)>* piece = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  static void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int i = 0; i < kSpins; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      _mm_pause();
    }
    value.wait(old, std::memory_order_acquire);
  }

  void take_pieces() {
    try {
      for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) (*piece)(i);
    } catch (...) {
      next.store(pieces, std::memory_order_relaxed);
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }

  bool enter() {
    std::uint32_t seen = gate.load(std::memory_order_relaxed);
    while (seen & kOpen) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void work() {
    for (std::uint32_t done = 0;;) {
      wait_while(job, done);
      done = job.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      if (!enter()) continue;
      take_pieces();
      if (gate.fetch_sub(1, std::memory_order_acq_rel) == 1) gate.notify_one();
    }
  }

  void announce() {
    job.fetch_add(1, std::memory_order_acq_rel);
    job.notify_all();
  }

  void run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    CHECK(gate.load(std::memory_order_relaxed) == 0, "for_each was called inside another for_each");
    pieces = count;
    piece = &body;
    error = nullptr;
    next.store(0, std::memory_order_relaxed);
    gate.store(kOpen, std::memory_order_release);
    announce();
    take_pieces();
    for (auto inside = gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen; inside != 0;
         inside = gate.load(std::memory_order_acquire)) {
      wait_while(gate, inside);
    }
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

Threads::Threads(int count)
    : count_(count > 0 ? count : usable_processors()), pool_(std::make_unique<Pool>()) {
  for (int i = 1; i < count_; ++i) pool_->workers.emplace_back([pool = pool_.get()] { pool->work(); });
}

Threads::~Threads() {
  pool_->stopping.store(true, std::memory_order_release);
  pool_->announce();
  for (std::thread& worker : pool_->workers) worker.join();
}

void Threads::for_each(std::int64_t pieces, const std::function<void(std::int64_t)>& piece) {
  if (count_ == 1 || pieces <= 1) {
    for (std::int64_t i = 0; i < pieces; ++i) piece(i);
    return;
  }
  pool_->run(pieces, piece);
}

namespace {

// Processors that quota microseconds of every period stand for, rounded up: a last part of one is worth a
// thread.
int processors_of(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, int((quota + period - 1) / period)) : 0;
}

int version2_limit(const fs::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0, period = 0;  // "max 100000" leaves quota unread: no limit
  return in >> quota >> period ? processors_of(quota, period) : 0;
}

int version1_limit(const fs::path& group) {
  std::ifstream quota_in(group / "cpu.cfs_quota_us"), period_in(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_in >> quota && period_in >> period ? processors_of(quota, period) : 0;
}

}  // namespace

int cgroup_processors(std::string_view proc_self_cgroup, const fs::path& mount) {
  int least = 0;
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b" for version 2
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",cpu,") == std::string::npos) continue;
    const fs::path root = version2 ? mount : mount / "cpu";
    // Every group up to the root may have a limit of its own. Inside a container the path may be the host's,
    // and only the root is there to be read.
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      const int limit = version2 ? version2_limit(root / group) : version1_limit(root / group);
      if (limit > 0) least = least == 0 ? limit : std::min(least, limit);
      if (group.empty()) break;
    }
  }
  return least;
}

int usable_processors() {
  cpu_set_t set;
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                                  : int(std::thread::hardware_concurrency());
  std::ostringstream groups;
  groups << std::ifstream("/proc/self/cgroup").rdbuf();
  const int limit = cgroup_processors(groups.str(), "/sys/fs/cgroup");
  return std::max(1, limit > 0 ? std::min(allowed, limit) : allowed);
}

}  // namespace slideway
