#include "device/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/log.h"
#include "device/pages.h"

namespace slideway {
namespace {

constexpr std::size_t kPageBytes = 4096, kWordStride = 64 / sizeof(std::uint64_t);

void check_driver(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) fail(ErrorKind::device, call, " failed with CUDA driver error ", int(result));
}

template <class Function>
void find_in_driver(const char* symbol, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  constexpr unsigned kVersion = 12000;  // the calls' form of that version
  const cudaError_t result =
      cudaGetDriverEntryPointByVersion(symbol, &found, kVersion, cudaEnableDefault, &status);
  if (result != cudaSuccess || status != cudaDriverEntryPointSuccess || !found) {
    (void)cudaGetLastError();
    fail(ErrorKind::unsupported, "the CUDA driver has no ", symbol, ": version 12.0 or later is needed");
  }
  function = reinterpret_cast<Function>(found);
}

}  // namespace

void prepare_cuda_environment() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

CudaContext::CudaContext(int index) : index_(index) {
  prepare_cuda_environment();
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    fail(ErrorKind::device, "no CUDA device can be used: ",
         result == cudaSuccess ? "there is none" : cudaGetErrorString(result));
  }
  if (index < 0 || index >= count) {
    fail(ErrorKind::invalid_input, "CUDA device ", index, " was asked for, but there are ", count,
         ", counted from 0");
  }
  use();
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  name_ = properties.name;
  char bus_id[32];
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index));
  bus_id_ = bus_id;
  find_operations();
  watcher_ = std::thread([this] { watch(); });
}

void CudaContext::find_operations() {
  CUresult (*get_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  find_in_driver("cuDeviceGetAttribute", get_attribute);
  int supported = 0;
  check_driver(get_attribute(&supported, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, index_),
               "cuDeviceGetAttribute");
  if (!supported) fail(ErrorKind::unsupported, name_, " has no 64-bit stream memory operations");
  find_in_driver("cuStreamWriteValue64", write_value_);
  find_in_driver("cuStreamWaitValue64", wait_value_);
}

CudaContext::~CudaContext() {
  stopping_ = true;
  watcher_.join();
  (void)cudaSetDevice(index_);
  for (std::uint64_t* page : pages_) {
    (void)cudaHostUnregister(page);
    unmap_pages(page, kPageBytes);
  }
}

std::shared_ptr<Timeline> CudaContext::make_timeline(const std::string& name) {
  use();
  const std::lock_guard lock(words_mutex_);
  if (spare_.empty()) {
    auto* page = static_cast<std::uint64_t*>(map_pages(kPageBytes, "event words"));
    pages_.push_back(page);
    CUDA_CHECK(cudaHostRegister(page, kPageBytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    for (std::size_t i = kPageBytes / sizeof *page; i > 0; i -= kWordStride)
      spare_.push_back(page + i - kWordStride);
  }
  std::uint64_t* const word = spare_.back();
  void* address = nullptr;
  CUDA_CHECK(cudaHostGetDevicePointer(&address, word, 0));
  spare_.pop_back();
  *word = 0;
  return {new Timeline(name, word, reinterpret_cast<CUdeviceptr>(address)),
          [self = shared_from_this()](Timeline* timeline) {
            const std::lock_guard deleting(self->words_mutex_);
            self->spare_.push_back(timeline->word());
            delete timeline;
          }};
}

void CudaContext::stream_write(cudaStream_t stream, const Timeline& timeline, std::uint64_t value) const {
  // The default write comes after a barrier: what the stream wrote before is seen by whoever sees the value.
  check_driver(write_value_(stream, timeline.device_address(), value, CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue64");
}

void CudaContext::stream_wait(cudaStream_t stream, const std::shared_ptr<Timeline>& timeline,
                              std::uint64_t value) {
  if (timeline->reached(value)) return;
  {
    const std::lock_guard lock(streams_mutex_);
    const auto known =
        std::find_if(streams_.begin(), streams_.end(), [&](const Known& k) { return k.stream == stream; });
    CHECK(known != streams_.end(), "a stream of another device");
    std::erase_if(known->waits, [](const Wait& wait) { return wait.timeline->reached(wait.value); });
    known->waits.push_back({timeline, value});
  }
  check_driver(wait_value_(stream, timeline->device_address(), value, CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue64");
}

void CudaContext::add(cudaStream_t stream, const std::string& name) {
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back({stream, name, {}});
}

void CudaContext::remove(cudaStream_t stream) {
  const std::lock_guard lock(streams_mutex_);
  std::erase_if(streams_, [&](const Known& known) { return known.stream == stream; });
}

void CudaContext::check() {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(failure_mutex_);
  std::rethrow_exception(failure_);
}

void CudaContext::watch() {
  constexpr std::chrono::milliseconds kTurn(10);
  while (!stopping_.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(kTurn);
    try {
      query();
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      failure_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
      return;
    }
  }
}

void CudaContext::query() {
  use();
  const std::lock_guard lock(streams_mutex_);
  for (const Known& known : streams_) {
    const cudaError_t result = cudaStreamQuery(known.stream);
    if (result == cudaErrorNotReady) {
      (void)cudaGetLastError();  // not an error, but remembered as one
      continue;
    }
    if (result != cudaSuccess) {
      fail(ErrorKind::device, name_, ", stream '", known.name, "': ", cudaGetErrorName(result), ": ",
           cudaGetErrorString(result));
    }
  }
}

std::string CudaContext::waiting_text() {
  const std::lock_guard lock(streams_mutex_);
  std::string text;
  for (const Known& known : streams_) {
    for (const Wait& wait : known.waits) {
      if (wait.timeline->reached(wait.value)) continue;
      text += (text.empty() ? "" : "; ") +
              ("stream '" + known.name + "' waits for event '" + wait.timeline->name()) + "' to reach " +
              std::to_string(wait.value) + " (it is at " + std::to_string(wait.timeline->value()) + ")";
      break;  // later ones may not have been come to
    }
  }
  return text.empty() ? "no stream waits for an event" : text;
}

std::optional<std::uint64_t> CudaContext::waited_values() {
  const std::lock_guard lock(streams_mutex_);
  std::uint64_t sum = 0;
  bool any = false;
  for (const Known& known : streams_) {
    for (const Wait& wait : known.waits) {
      any = any || !wait.timeline->reached(wait.value);
      sum += wait.timeline->value();
    }
  }
  return any ? std::optional(sum) : std::nullopt;
}

void CudaContext::release_all() {
  const std::lock_guard lock(words_mutex_);
  for (std::uint64_t* page : pages_) {
    for (std::size_t i = 0; i < kPageBytes / sizeof *page; i += kWordStride) {
      std::atomic_ref(page[i]).store(Timeline::kReleased, std::memory_order_release);
    }
  }
}

void CudaContext::settle() noexcept try {
  using namespace std::chrono_literals;
  auto last = waited_values();
  auto moved = std::chrono::steady_clock::now();
  while (last) {
    std::this_thread::sleep_for(100us);
    const auto values = waited_values();
    const auto now = std::chrono::steady_clock::now();
    if (values != last) moved = now;
    last = values;
    if (now - moved < 5s) continue;
    log(LogLevel::debug, name_, " is given up: ", waiting_text());
    release_all();
    return;
  }
} catch (...) {  // the end of things is no place for errors; the next call meets what is wrong
}

}  // namespace slideway
