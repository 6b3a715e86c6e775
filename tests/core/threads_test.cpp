#include "core/threads.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

TEST(Threads, RunEveryPieceOnce) {
  for (const int count : {1, 2, 3, 7}) {
    Threads threads(count);
    EXPECT_EQ(threads.count(), count);
    for (const int pieces : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> runs(std::size_t(pieces) + 1);
      threads.for_each(pieces, [&](std::int64_t i) { ++runs[std::size_t(i)]; });
      for (int i = 0; i < pieces; ++i)
        EXPECT_EQ(runs[std::size_t(i)], 1) << i << " of " << pieces << " on " << count;
    }
  }
}

TEST(Threads, RunManyShortJobsOneAfterAnother) {
  Threads threads(4);
  std::vector<std::int64_t> sums(8);  // written without atomics: the next job must see the last one's writes
  for (int job = 0; job < 3000; ++job) {
    threads.for_each(8, [&](std::int64_t i) { sums[std::size_t(i)] += i; });
    if (job % 500 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough to fall asleep
  }
  for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(sums[std::size_t(i)], 3000 * i);
}

TEST(Threads, WorkOnSeveralPiecesAtTheSameTime) {
  Threads threads(3);
  std::atomic<int> inside{0};
  threads.for_each(3, [&](std::int64_t) {
    ++inside;
    while (inside < 3) std::this_thread::yield();  // ends only if three threads are here together
  });
  EXPECT_EQ(inside, 3);
}

TEST(Threads, ThrowTheFirstExceptionAgainAndGoOn) {
  Threads threads(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> runs{0};
    expect_error(ErrorKind::invalid_input, {"piece 7"}, [&] {
      threads.for_each(100'000, [&](std::int64_t i) {
        ++runs;
        if (i == 7) fail(ErrorKind::invalid_input, "piece ", i);
      });
    });
    EXPECT_GE(runs, 8);
    std::atomic<int> after{0};
    threads.for_each(10, [&](std::int64_t) { ++after; });
    EXPECT_EQ(after, 10);
  }
}

TEST(Threads, RefuseAJobInsideAJob) {
  Threads threads(2);
  expect_error(ErrorKind::internal, {"inside another"},
               [&] { threads.for_each(2, [&](std::int64_t) { threads.for_each(2, [](std::int64_t) {}); }); });
}

TEST(UsableProcessors, ObeyTheAffinityOfTheProcess) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_LE(usable_processors(), CPU_COUNT(&all));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &all)) {
      CPU_SET(i, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_processors(), 1);
  EXPECT_EQ(Threads().count(), 1);
  sched_setaffinity(0, sizeof all, &all);
}

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  File::create(path).write(text);
}

TEST(UsableProcessors, ReadTheLimitOfVersionTwoGroupsAndOfThoseAbove) {
  const TemporaryFolder mount;
  put(mount / "a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_processors("0::/a/b\n", mount.path()), 0);
  put(mount / "a/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_processors("0::/a/b\n", mount.path()), 3);
  put(mount / "cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_processors("0::/a/b\n", mount.path()), 1);
  EXPECT_EQ(cgroup_processors("0::/of/the/host\n", mount.path()), 1);
  EXPECT_EQ(cgroup_processors("", mount.path()), 0);
}

TEST(UsableProcessors, ReadTheLimitOfVersionOneGroups) {
  const TemporaryFolder mount;
  put(mount / "cpu/x/cpu.cfs_quota_us", "-1\n");
  put(mount / "cpu/x/cpu.cfs_period_us", "100000\n");
  const char* groups = "5:memory:/m\n4:cpuset:/x\n3:cpu,cpuacct:/x\n";
  EXPECT_EQ(cgroup_processors(groups, mount.path()), 0);
  put(mount / "cpu/x/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(cgroup_processors(groups, mount.path()), 4);
}

}  // namespace
}  // namespace slideway
