// The CUDA device, through the Device interface alone. Skipped where no GPU can be used.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "device/device.h"
#include "support/expect_error.h"

namespace slideway {
namespace {

using namespace std::chrono_literals;

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = make_cuda_device();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::device) throw;
      GTEST_SKIP() << error.what();
    }
  }

  // Copies through pinned memory and back to a vector.
  std::vector<int> read_back(const Buffer& from) {
    const Buffer pinned = device_->allocate_pinned(from.bytes());
    const auto stream = device_->make_stream("read back");
    stream->copy(pinned.data(), from.data(), from.bytes());
    stream->synchronize();
    std::vector<int> numbers(from.bytes() / sizeof(int));
    std::memcpy(numbers.data(), pinned.data(), numbers.size() * sizeof(int));
    return numbers;
  }

  std::unique_ptr<Device> device_;
};

int* ints(const Buffer& buffer) {
  return reinterpret_cast<int*>(buffer.data());
}

TEST_F(CudaDevice, TellsWhatItIs) {
  EXPECT_EQ(device_->kind(), DeviceKind::cuda);
  EXPECT_TRUE(device_->copies());
  EXPECT_THAT(device_->name(), testing::HasSubstr("cuda:0"));
  std::printf("%s\n", device_->name().c_str());
  expect_error(ErrorKind::invalid_input, {"CUDA device 99", "there are"}, [] { make_cuda_device(99); });
}

TEST_F(CudaDevice, GivesZeroedAlignedMemory) {
  std::vector<Buffer> kept;
  for (const std::size_t bytes :
       {std::size_t(4), std::size_t(1000), std::size_t(4096), std::size_t(5) << 20}) {
    for (int i = 0; i < 3; ++i) {
      kept.push_back(device_->allocate(bytes));
      ASSERT_EQ(kept.back().bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kept.back().data()) % 4096, 0u);
      const std::vector<int> numbers = read_back(kept.back());
      EXPECT_TRUE(std::all_of(numbers.begin(), numbers.end(), [](int n) { return n == 0; }));
      const Buffer pinned = device_->allocate_pinned(bytes);
      EXPECT_EQ(pinned.bytes(), bytes);
      EXPECT_TRUE(std::all_of(ints(pinned), ints(pinned) + bytes / 4, [](int n) { return n == 0; }));
    }
  }
  EXPECT_EQ(device_->allocate(0).data(), nullptr);
}

TEST_F(CudaDevice, SaysHowMuchMemoryThereIs) {
  expect_error(ErrorKind::out_of_memory, {"1125899906842624 bytes", "cuda:0", "are free"},
               [&] { device_->allocate(std::size_t(1) << 50); });
}

TEST_F(CudaDevice, CopiesBetweenPinnedAndDeviceMemory) {
  const std::size_t n = 1 << 20;
  const Buffer from = device_->allocate_pinned(n * 4), there = device_->allocate(n * 4),
               more = device_->allocate(n * 4);
  std::iota(ints(from), ints(from) + n, 5);
  const auto stream = device_->make_stream("copy");
  stream->copy(there.data(), from.data(), n * 4);
  stream->copy(more.data(), there.data(), n * 4);
  stream->copy(more.data(), from.data() + 4 * 10, 4);
  stream->synchronize();
  const std::vector<int> numbers = read_back(more);
  EXPECT_EQ(numbers[0], 15);
  EXPECT_EQ(numbers[1], 6);
  EXPECT_EQ(numbers[n - 1], int(n) + 4);
}

TEST_F(CudaDevice, RefusesToCopyFromMemoryThatIsNotPinned) {
  const Buffer there = device_->allocate(64);
  const auto stream = device_->make_stream("upload");
  std::vector<int> here(16);
  expect_error(ErrorKind::internal, {"'upload'", "from memory"},
               [&] { stream->copy(there.data(), here.data(), 64); });
}

TEST_F(CudaDevice, AStreamWaitsForAHostSignalIssuedLater) {
  const Buffer source = device_->allocate_pinned(4), target = device_->allocate(4);
  const auto upload = device_->make_stream("upload");
  const auto updated = device_->make_event("updated"), filled = device_->make_event("filled");
  upload->wait(*updated, 2);
  upload->copy(target.data(), source.data(), 4);
  upload->signal(*filled, 1);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(filled->reached(1));
  updated->signal(1);  // not enough
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(filled->reached(1));
  *ints(source) = 77;
  updated->signal(2);
  filled->wait(1);
  EXPECT_EQ(read_back(target)[0], 77);
}

TEST_F(CudaDevice, AStreamWaitsForAnotherWhoseSignalIsIssuedLater) {
  const Buffer source = device_->allocate_pinned(4), between = device_->allocate(4),
               target = device_->allocate(4);
  const auto first = device_->make_stream("first"), second = device_->make_stream("second");
  const auto event = device_->make_event("event");
  second->wait(*event, 1);
  second->copy(target.data(), between.data(), 4);
  *ints(source) = 99;
  first->copy(between.data(), source.data(), 4);
  first->signal(*event, 1);
  second->synchronize();
  EXPECT_EQ(read_back(target)[0], 99);
}

TEST_F(CudaDevice, SixteenWaitingStreamsDoNotHoldEachOtherUp) {
  constexpr int kStreams = 16;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(device_->make_stream("s" + std::to_string(i)));
    events.push_back(device_->make_event("e" + std::to_string(i)));
  }
  for (int i = 0; i + 1 < kStreams; ++i) {  // each waits for the next one, whose work is issued later
    streams[std::size_t(i)]->wait(*events[std::size_t(i + 1)], 1);
    streams[std::size_t(i)]->signal(*events[std::size_t(i)], 1);
  }
  streams.back()->signal(*events.back(), 1);
  events[0]->wait(1);
}

TEST_F(CudaDevice, AWorkerStandsBetweenDownloadAndUpload) {
  // What the sliding engine does with every layer: the gradient comes down, the host updates, the weights go up.
  constexpr int kSteps = 200;
  const Buffer weights = device_->allocate(4), host = device_->allocate_pinned(4),
               gradient = device_->allocate_pinned(4);
  const auto up = device_->make_stream("upload"), down = device_->make_stream("download");
  const auto update = device_->make_worker("update");
  const auto uploaded = device_->make_event("uploaded"), downloaded = device_->make_event("downloaded"),
             updated = device_->make_event("updated");
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    up->wait(*updated, step);  // issued before anything that it waits for
    up->copy(weights.data(), host.data(), 4);
    up->signal(*uploaded, step);
    down->wait(*uploaded, step - 1);
    down->copy(gradient.data(), weights.data(), 4);
    down->signal(*downloaded, step);
    update->wait(*downloaded, step);
    update->run([&host, &gradient, step] { *ints(host) = *ints(gradient) * 3 + int(step % 7); });
    update->signal(*updated, step);
  }
  uploaded->wait(kSteps);
  update->synchronize();
  unsigned expected = 0;
  for (unsigned step = 1; step <= kSteps; ++step) expected = expected * 3 + step % 7;
  EXPECT_EQ(unsigned(read_back(weights)[0]), expected);
}

TEST_F(CudaDevice, HoldsItsOrderWhicheverSignalIsLate) {
  // The same round trip through two slots; in each run one of the signals comes two milliseconds late.
  constexpr int kLayers = 6, kNumbers = 1 << 16, kBytes = 4 * kNumbers, kSignals = 3 * kLayers;
  const Buffer source = device_->allocate_pinned(std::size_t(kLayers) * kBytes);
  const Buffer result = device_->allocate_pinned(std::size_t(kLayers) * kBytes);
  const Buffer slots = device_->allocate(2 * kBytes);
  const auto up = device_->make_stream("upload"), down = device_->make_stream("download");
  const auto worker = device_->make_worker("update"), late = device_->make_worker("late");
  for (int delayed = 0; delayed < kSignals; ++delayed) {
    const auto filled = device_->make_event("filled"), freed = device_->make_event("freed"),
               made = device_->make_event("made");
    std::vector<std::unique_ptr<Event>> detours;
    int signals = 0;
    const auto signal = [&](Stream& stream, Event& event, std::uint64_t value) {
      if (signals++ != delayed) return stream.signal(event, value);
      detours.push_back(device_->make_event("detour"));
      stream.signal(*detours.back(), 1);
      late->wait(*detours.back(), 1);
      late->run([] { std::this_thread::sleep_for(2ms); });
      late->signal(event, value);
      stream.wait(event, value);  // what follows in the stream signals the same event again
    };
    std::memset(source.data(), 0, source.bytes());
    std::memset(result.data(), 0, result.bytes());
    for (int l = 0; l < kLayers; ++l) {
      const auto turn = std::uint64_t(l + 1);
      std::byte* const slot = slots.data() + (l % 2) * kBytes;
      int* const from = ints(source) + l * kNumbers;
      worker->run([=] { std::iota(from, from + kNumbers, 1000 * l + delayed); });
      signal(*worker, *made, turn);
      up->wait(*made, turn);
      if (l >= 2) up->wait(*freed, turn - 2);
      up->copy(slot, from, kBytes);
      signal(*up, *filled, turn);
      down->wait(*filled, turn);
      down->copy(result.data() + std::size_t(l) * kBytes, slot, kBytes);
      signal(*down, *freed, turn);
    }
    freed->wait(kLayers);
    for (int l = 0; l < kLayers; ++l) {
      for (int i = 0; i < kNumbers; i += 977) {
        ASSERT_EQ(ints(result)[l * kNumbers + i], 1000 * l + delayed + i) << "late signal " << delayed;
      }
    }
    up->synchronize();
    down->synchronize();
    worker->synchronize();
    late->synchronize();
  }
}

TEST_F(CudaDevice, AWorkersCopiesReachTheDeviceInItsOrder) {
  const Buffer there = device_->allocate(4);
  const auto worker = device_->make_worker("worker");
  int number = 0, back = 0;  // a worker's copies may be of any memory
  worker->run([&] { number = 31; });
  worker->copy(there.data(), &number, 4);
  worker->run([&] { number = 0; });
  worker->copy(&back, there.data(), 4);
  worker->synchronize();
  EXPECT_EQ(back, 31);
}

TEST_F(CudaDevice, EndsWhenTheHostFailsBeforeItsSignal) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Buffer source = device_->allocate_pinned(4), target = device_->allocate(4);
    const auto event = device_->make_event("never signalled");
    const auto upload = device_->make_stream("upload");
    upload->wait(*event, 1);
    upload->copy(target.data(), source.data(), 4);
    fail(ErrorKind::io, "the disk has gone");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the disk has gone");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  const Buffer after = device_->allocate(64);  // and the device lives on
  EXPECT_EQ(read_back(after)[0], 0);
}

TEST_F(CudaDevice, CopiesFromPinnedMemoryAtFullSpeed) {
  const std::size_t bytes = std::size_t(1) << 30;
  const auto seconds_since = [](auto begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  auto begin = std::chrono::steady_clock::now();
  const Buffer host = device_->allocate_pinned(bytes), other = device_->allocate_pinned(bytes);
  std::printf("pinning: %.2f s a GiB\n", seconds_since(begin) / 2);
  const Buffer gpu = device_->allocate(bytes), gpu2 = device_->allocate(bytes);
  const auto up = device_->make_stream("up"), down = device_->make_stream("down");
  double best[3] = {1e9, 1e9, 1e9};
  for (int round = 0; round < 4; ++round) {
    for (int ways = 0; ways < 3; ++ways) {
      begin = std::chrono::steady_clock::now();
      if (ways != 1) up->copy(gpu.data(), host.data(), bytes);
      if (ways != 0) down->copy(other.data(), gpu2.data(), bytes);
      up->synchronize();
      down->synchronize();
      best[ways] = std::min(best[ways], seconds_since(begin));
    }
  }
  const double gb = double(bytes) * 1e-9;
  std::printf("copies: up %.1f GB/s, down %.1f GB/s, both at once %.1f GB/s\n", gb / best[0], gb / best[1],
              2 * gb / best[2]);
  EXPECT_GT(gb / best[0], 5) << "pinned memory is slower than any link";
}

}  // namespace
}  // namespace slideway
