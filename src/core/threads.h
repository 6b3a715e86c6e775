// Threads: the program's own pool of workers for CPU kernels.
//
// Work is cut into numbered pieces by the caller, never by the number of threads, so that a result's bits cannot
// depend on it. Pieces are taken in ascending order by whichever thread is free.
//
// Threads  for_each is called from one thread at a time; the caller works too
// Errors   the first exception thrown by a piece is thrown again by for_each, after all threads have stopped
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

namespace slideway {

namespace fs = std::filesystem;

class Threads {
 public:
  // count 0: as many as this process may use (affinity and the cgroup's cpu.max).
  explicit Threads(int count = 0);
  ~Threads();

  // Runs piece(i) for every i in [0, pieces).
  void for_each(std::int64_t pieces, const std::function<void(std::int64_t)>& piece);

  int count() const { return count_; }

 private:
  struct Pool;
  int count_;
  std::unique_ptr<Pool> pool_;
};

// The processors this process may use: min(affinity, cgroup cpu.max), at least 1.
int usable_processors();
// The least CPU limit among the control groups listed in proc_self_cgroup (the text of /proc/self/cgroup) and above
// them, versions 1 and 2, mounted at mount; 0: no limit.
int cgroup_processors(std::string_view proc_self_cgroup, const fs::path& mount);

}  // namespace slideway
