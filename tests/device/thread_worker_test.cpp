#include "device/thread_worker.h"

#include <chrono>
#include <thread>
#include <vector>

#include "support/expect_error.h"

namespace slideway {
namespace {

using namespace std::chrono_literals;

TimelineEvent made_event(const char* name) {
  return {std::make_shared<Timeline>(name), nullptr};
}

TEST(ThreadWorker, WorksThroughItsQueueOnItsOwnThread) {
  ThreadWorker worker("update", {});
  std::vector<int> order;
  std::thread::id where;
  const int from = 7;
  int to = 0;
  for (int i = 0; i < 100; ++i) worker.run([&order, i] { order.push_back(i); });
  worker.run([&] { where = std::this_thread::get_id(); });
  worker.copy(&to, &from, sizeof to);
  worker.synchronize();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[std::size_t(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
  EXPECT_EQ(to, 7);
}

TEST(ThreadWorker, WaitsForASignalThatIsIssuedLater) {
  TimelineEvent ready = made_event("ready"), done = made_event("done");
  ThreadWorker first("first", {}), second("second", {});
  std::int64_t value = 0;  // plain: the events alone order the threads
  second.wait(ready, 3);
  second.run([&] { value *= 2; });
  second.signal(done, 1);
  first.run([&] {
    std::this_thread::sleep_for(2ms);
    value = 21;
  });
  first.signal(ready, 3);
  done.wait(1);
  EXPECT_EQ(value, 42);
  EXPECT_TRUE(ready.reached(3));
  EXPECT_FALSE(ready.reached(4));
}

TEST(ThreadWorker, PassesValuesBackAndForth) {
  TimelineEvent ping = made_event("ping"), pong = made_event("pong");
  ThreadWorker a("a", {}), b("b", {});
  std::int64_t value = 0;
  for (std::uint64_t i = 1; i <= 500; ++i) {
    a.wait(pong, i - 1);
    a.run([&] { ++value; });
    a.signal(ping, i);
    b.wait(ping, i);
    b.run([&] { value += 1000; });
    b.signal(pong, i);
  }
  pong.wait(500);
  EXPECT_EQ(value, 500 * 1001);
}

TEST(ThreadWorker, PassesAnErrorOnAndStillGivesItsSignals) {
  TimelineEvent issued = made_event("issued"), done = made_event("done");
  ThreadWorker worker("update", {});
  int runs = 0;
  worker.wait(issued, 1);
  worker.run([] { fail(ErrorKind::corrupt, "bad layer"); });
  worker.run([&] { ++runs; });
  worker.signal(done, 1);
  issued.signal(1);
  done.wait(1);
  expect_error(ErrorKind::corrupt, {"bad layer"}, [&] { worker.run([&] { ++runs; }); });
  expect_error(ErrorKind::corrupt, {"bad layer"}, [&] { worker.synchronize(); });
  EXPECT_EQ(runs, 0);
  worker.run([&] { ++runs; });
  worker.synchronize();
  EXPECT_EQ(runs, 1);
}

TEST(ThreadWorker, EndsWithWorkLeft) {
  TimelineEvent never = made_event("never"), done = made_event("done");
  bool ran = false;
  {
    ThreadWorker worker("update", {});
    worker.wait(never, 1);
    worker.run([&] { ran = true; });
    worker.signal(done, 1);
  }
  EXPECT_FALSE(ran);
  EXPECT_TRUE(done.reached(1)) << "others may wait for it";
}

TEST(ThreadWorker, StopsWaitingWhenItsDeviceHasFailed) {
  std::atomic<bool> failed{false};
  const Patience::Check check = [&] {
    if (failed) fail(ErrorKind::device, "the device has fallen off");
  };
  TimelineEvent never(std::make_shared<Timeline>("never"), check);
  ThreadWorker worker("update", {.check = check});
  worker.wait(never, 1);
  failed = true;
  expect_error(ErrorKind::device, {"fallen off"}, [&] { worker.synchronize(); });
  expect_error(ErrorKind::device, {"fallen off"}, [&] { never.wait(1); });
}

TEST(ThreadWorker, BeginsAndCopiesAsItsDeviceSays) {
  int begun = 0, copied = 0, byte = 0;
  ThreadWorker worker(
      "update", {.begin = [&] { ++begun; }, .copy = [&](void*, const void*, std::size_t) { ++copied; }});
  worker.copy(&begun, &byte, 1);
  worker.copy(&begun, &begun, 1);  // nothing to do
  worker.synchronize();
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(copied, 1);
}

}  // namespace
}  // namespace slideway
