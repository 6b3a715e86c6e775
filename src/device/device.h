// Device: where computing happens. Memory, streams of ordered work, and events that order streams among each other.
//
// An Event is a counter that only grows (a timeline). signal(n) raises it to n, wait(n) holds until it has reached n.
// Both exist for host threads and for streams, and a wait may be issued before its signal.
//
// Three devices stand behind this interface:
//   host, at once     streams do what they are told when they are told; nothing is copied that need not be (product)
//   host, seeded      streams are queues; a seeded choice decides whose next item runs; real copies (tests, option)
//   cuda              CUDA streams; waits and signals are stream memory operations on a pinned word
//
// Rules that all three hold their callers to:
//   - the signals of one event ascend, from whichever stream they come
//   - where streams run at once a wait cannot hold anything up: code for every device issues a signal before the
//     waits for it; only code for the others may issue a wait first
//   - a stream or event ends when what was issued to it is done: synchronize first, or what is left may be dropped
//   - a Stream copies between Buffers only (a Worker between any memory): CUDA would hold up the issuing thread for a
//     copy of memory that is not pinned, perhaps while the stream waits for that thread
//   - an error inside a Worker's closure reaches the issuing thread at that worker's synchronize() at the latest; until
//     then its signals are given all the same, so nothing is to be kept from its results before that
//
// Units    bytes
// Owns     its streams' queues; Buffers own their memory; all of them end before the Device
// Threads  issuing is one thread at a time; Worker closures run on the worker's own thread (cuda) or in its turn
// Errors   out_of_memory, device; internal when streams wait for each other in a circle (who waits for what)
// Source   docs/design.md, "Device"
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace slideway {

// Memory of one kind, given back when the object ends. Aligned to 4096.
class Buffer {
 public:
  using Free = std::function<void(void*, std::size_t)>;
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Free free) : data_(data), bytes_(bytes), free_(std::move(free)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (data_ && free_) free_(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data(), bytes_}; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Free free_;
};

class Event {
 public:
  virtual ~Event() = default;
  virtual void signal(std::uint64_t value) = 0;  // from the host, now
  virtual void wait(std::uint64_t value) = 0;    // the host thread blocks
  virtual bool reached(std::uint64_t value) const = 0;
};

// Work in order. Streams run beside each other; only events order them.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void signal(Event& event, std::uint64_t value) = 0;  // when everything issued so far has been done
  virtual void wait(Event& event, std::uint64_t value) = 0;    // nothing issued later starts before
  virtual void synchronize() = 0;  // the host thread blocks until the stream is empty
};

// A stream of host work: a thread beside the device, such as the one that runs the optimizer. On cuda it runs on the
// processors next to the GPU, and so do the Threads that its closures make.
class Worker : public Stream {
 public:
  virtual void run(std::function<void()> work) = 0;
};

enum class DeviceKind { host, cuda };

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;
  // False where the device computes on host memory in place, so that a fetch need not copy.
  virtual bool copies() const = 0;
  // Device memory that could still be taken, where the device has memory of its own; the host's has no limit here.
  virtual std::uint64_t available() const { return ~std::uint64_t(0); }
  virtual Buffer allocate(std::size_t bytes) = 0;  // device memory, zeroed
  virtual Buffer allocate_pinned(
      std::size_t bytes) = 0;  // host memory that the device copies from at full speed
  virtual std::unique_ptr<Stream> make_stream(const std::string& name) = 0;
  virtual std::unique_ptr<Worker> make_worker(const std::string& name) = 0;
  virtual std::unique_ptr<Event> make_event(const std::string& name) = 0;
};

// A stream's wait for an event, by name.
struct StreamWait {
  std::string stream, event;
  std::uint64_t value;
};

struct HostDeviceOptions {
  bool seeded = false;  // streams as queues in an order drawn from seed, with real copies
  std::uint64_t seed = 0;
  // For tests of a seeded device. Every stream wait is appended to waits as it is issued. Left out are the
  // one with the index dropped_wait (from 0, in order of issue) and those that drops says yes to.
  std::vector<StreamWait>* waits = nullptr;
  std::int64_t dropped_wait = -1;
  std::function<bool(const StreamWait&)> drops;
};

// Plain host memory that no device copies from: zeroed, of exactly this size.
Buffer allocate_host(std::size_t bytes);

std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options = {});
std::unique_ptr<Device> make_cuda_device(int index = 0);  // unsupported where CUDA was not built
int cuda_devices();  // how many can be used: 0 without CUDA, a driver or a GPU

}  // namespace slideway
