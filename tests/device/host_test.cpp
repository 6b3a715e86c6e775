#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "device/device.h"
#include "device/pages.h"
#include "support/expect_error.h"

namespace slideway {
namespace {

// --- at once ---

TEST(HostDevice, DoesWhatItIsToldWhenItIsTold) {
  const auto device = make_host_device();
  EXPECT_EQ(device->kind(), DeviceKind::host);
  EXPECT_FALSE(device->copies());
  const auto stream = device->make_worker("compute");
  const auto event = device->make_event("ready");
  int from = 5, to = 0;
  stream->copy(&to, &from, sizeof from);
  EXPECT_EQ(to, 5);
  stream->copy(&to, &to, sizeof to);  // nothing to do, and allowed
  stream->run([&] { to = 6; });
  EXPECT_EQ(to, 6);
  EXPECT_FALSE(event->reached(1));
  stream->signal(*event, 1);
  EXPECT_TRUE(event->reached(1));
  stream->wait(*event, 1);
  event->wait(1);
  event->signal(7);
  EXPECT_TRUE(event->reached(6));
  stream->synchronize();
}

TEST(HostDevice, RefusesAWaitThatNobodyCouldEnd) {
  const auto device = make_host_device();
  const auto stream = device->make_stream("copy");
  const auto event = device->make_event("filled");
  stream->signal(*event, 2);
  expect_error(ErrorKind::internal, {"stream 'copy'", "event 'filled'", "reach 3", "at 2"},
               [&] { stream->wait(*event, 3); });
  expect_error(ErrorKind::internal, {"the host waits", "event 'filled'", "reach 3", "at 2"},
               [&] { event->wait(3); });
}

TEST(HostDevice, RefusesASignalThatDoesNotGrow) {
  const auto device = make_host_device();
  const auto stream = device->make_stream("copy");
  const auto event = device->make_event("filled");
  stream->signal(*event, 2);
  expect_error(ErrorKind::internal, {"'filled'", "with 2 after 2"}, [&] { stream->signal(*event, 2); });
}

TEST(HostDevice, EveryStreamIsAWorker) {
  for (const bool seeded : {false, true}) {
    const auto device = make_host_device({.seeded = seeded});
    EXPECT_NE(dynamic_cast<Worker*>(device->make_stream("compute").get()), nullptr);
  }
}

TEST(HostDevice, GivesZeroedMemoryOfTheSizeAskedFor) {
  for (const bool seeded : {false, true}) {
    const auto device = make_host_device({.seeded = seeded});
    for (const std::size_t bytes : {std::size_t(1), std::size_t(4096), std::size_t(5) << 20}) {
      for (int turn = 0; turn < 2; ++turn) {  // the second time perhaps in the place of the first
        const Buffer buffer = turn ? device->allocate_pinned(bytes) : device->allocate(bytes);
        ASSERT_EQ(buffer.bytes(), bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % (bytes < (2 << 20) ? 4096 : 2 << 20), 0u);
        for (std::size_t i = 0; i < bytes; i += 509) ASSERT_EQ(buffer.data()[i], std::byte(0));
        std::memset(buffer.data(), 0xff, bytes);
      }
    }
    EXPECT_EQ(device->allocate(0).data(), nullptr);
  }
}

TEST(HostDevice, SaysHowMuchMemoryItCouldNotGet) {
  const auto device = make_host_device();
  expect_error(ErrorKind::out_of_memory, {"4611686018427387904 bytes", "Cannot allocate"},
               [&] { device->allocate(std::size_t(1) << 62); });
  expect_error(ErrorKind::out_of_memory, {"18446744073709551615 bytes"},
               [&] { device->allocate(~std::size_t(0)); });
}

TEST(HostDeviceDeathTest, StopsWhoWritesPastTheEndOrAfterTheEnd) {
  const auto device = make_host_device({.seeded = true});
  EXPECT_DEATH(
      {
        const Buffer buffer = device->allocate(4096);
        static_cast<volatile char*>(static_cast<void*>(buffer.data()))[4096] = 1;
      },
      "");
  EXPECT_DEATH(
      {
        volatile std::byte* late = device->allocate(4096).data();
        late[0] = std::byte(1);
      },
      "");
}

TEST(NoCuda, IsRefusedByNameWhereItWasNotBuilt) {
  try {
    make_cuda_device(0);
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::unsupported || error.kind() == ErrorKind::device);
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDA"));
  }
}

// --- seeded ---

TEST(SeededDevice, RunsQueuesInTheOrderThatEventsAllow) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto device = make_host_device({.seeded = true, .seed = seed});
    EXPECT_TRUE(device->copies());
    const auto a = device->make_worker("a"), b = device->make_worker("b");
    const auto event = device->make_event("e");
    std::vector<int> order;
    b->wait(*event, 1);  // before its signal is issued
    b->run([&] { order.push_back(20); });
    a->run([&] { order.push_back(10); });
    a->signal(*event, 1);
    a->run([&] { order.push_back(11); });
    b->synchronize();
    a->synchronize();
    ASSERT_EQ(order.size(), 3u);
    EXPECT_EQ(order[0], 10);  // 20 and 11 in either order, both after 10
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 2u);
}

TEST(SeededDevice, OneSeedIsOneOrder) {
  const auto run = [](std::uint64_t seed) {
    const auto device = make_host_device({.seeded = true, .seed = seed});
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<int> order;
    for (int i = 0; i < 5; ++i) workers.push_back(device->make_worker("w"));
    for (int i = 0; i < 30; ++i) workers[std::size_t(i % 5)]->run([&order, i] { order.push_back(i); });
    for (const auto& worker : workers) worker->synchronize();
    return order;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

TEST(SeededDevice, LetsStreamsRunAheadOfTheHostInSomeOrders) {
  int ahead = 0, behind = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto device = make_host_device({.seeded = true, .seed = seed});
    const auto stream = device->make_stream("copy");
    int source = 1, target = 0;
    stream->copy(&target, &source, sizeof source);
    source = 2;  // too early: the copy may not have been done
    stream->synchronize();
    ++(target == 1 ? ahead : behind);
  }
  EXPECT_GT(ahead, 0);
  EXPECT_GT(behind, 0);
}

TEST(SeededDevice, AHostWaitRunsAsMuchAsItNeeds) {
  const auto device = make_host_device({.seeded = true, .seed = 1});
  const auto stream = device->make_worker("a");
  const auto event = device->make_event("e"), never = device->make_event("never");
  int value = 0;
  stream->run([&] { value = 1; });
  stream->signal(*event, 5);
  stream->wait(*never, 1);
  stream->run([&] { value = 2; });
  event->wait(5);
  EXPECT_EQ(value, 1);
  never->signal(1);  // from the host
  stream->synchronize();
  EXPECT_EQ(value, 2);
}

TEST(SeededDevice, APollingHostSeesTheStreamsMove) {
  const auto device = make_host_device({.seeded = true, .seed = 1});
  const auto stream = device->make_stream("a");
  const auto event = device->make_event("e");
  int bytes = 1, to = 0;
  for (int i = 0; i < 10; ++i) stream->copy(&to, &bytes, sizeof to);
  stream->signal(*event, 1);
  int polls = 0;
  while (!event->reached(1)) ASSERT_LT(++polls, 100);
}

TEST(SeededDevice, AWorkersOwnWaitLetsTheOthersRun) {
  const auto device = make_host_device({.seeded = true, .seed = 2});
  const auto a = device->make_worker("a"), b = device->make_worker("b");
  const auto event = device->make_event("e");
  std::vector<int> order;
  a->run([&] {
    event->wait(1);
    order.push_back(2);
  });
  a->run([&] { order.push_back(3); });
  b->run([&] { order.push_back(1); });
  b->signal(*event, 1);
  a->synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(SeededDevice, NamesWhoWaitsForWhomWhenNothingCanRun) {
  const auto device = make_host_device({.seeded = true});
  const auto copy = device->make_stream("copy"), compute = device->make_stream("compute");
  const auto filled = device->make_event("filled"), freed = device->make_event("freed");
  copy->wait(*freed, 2);
  copy->signal(*filled, 1);
  compute->wait(*filled, 1);
  compute->signal(*freed, 2);
  expect_error(ErrorKind::internal,
               {"the host waits for stream 'compute' to be empty",
                "stream 'copy' waits for event 'freed' to reach 2 (it is at 0)",
                "stream 'compute' waits for event 'filled' to reach 1 (it is at 0)"},
               [&] { compute->synchronize(); });
  expect_error(ErrorKind::internal, {"the host waits for event 'filled' to reach 1"},
               [&] { filled->wait(1); });
}

TEST(SeededDevice, PassesAnErrorOfAClosureToTheHost) {
  const auto device = make_host_device({.seeded = true});
  const auto worker = device->make_worker("update");
  expect_error(ErrorKind::corrupt, {"bad layer"}, [&] {
    worker->run([] { fail(ErrorKind::corrupt, "bad layer"); });
    worker->synchronize();
  });
  int after = 0;
  worker->run([&] { after = 1; });
  worker->synchronize();
  EXPECT_EQ(after, 1);
}

TEST(SeededDevice, ListsItsWaitsAndLeavesOutTheOneAskedFor) {
  for (const bool by_index : {true, false}) {
    std::vector<StreamWait> waits;
    const auto device =
        make_host_device({.seeded = true,
                          .waits = &waits,
                          .dropped_wait = by_index ? 1 : -1,
                          .drops = [&](const StreamWait& w) { return !by_index && w.event == "y"; }});
    const auto a = device->make_worker("a"), b = device->make_worker("b");
    const auto x = device->make_event("x"), y = device->make_event("y");
    x->signal(1);
    a->wait(*x, 1);
    b->wait(*y, 4);  // left out: nobody will signal it
    b->wait(*x, 1);
    a->synchronize();
    b->synchronize();
    ASSERT_EQ(waits.size(), 3u);
    EXPECT_EQ(waits[1].stream + waits[1].event + std::to_string(waits[1].value), "by4");
  }
}

TEST(SeededDevice, AnEventMayEndBeforeTheQueuesThatNameIt) {
  const auto device = make_host_device({.seeded = true, .seed = 5});
  const auto stream = device->make_stream("a");
  auto event = device->make_event("e");
  stream->signal(*event, 1);
  stream->wait(*event, 1);
  event.reset();
  stream->synchronize();
}

}  // namespace
}  // namespace slideway
