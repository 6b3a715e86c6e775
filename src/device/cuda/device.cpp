// The CUDA device: GPU memory, pinned memory next to the GPU, streams, and workers that are threads next to it.
#include <sys/mman.h>

#include <algorithm>

#include "core/threads.h"
#include "device/cuda/stream.h"
#include "device/numa.h"
#include "device/pages.h"
#include "device/thread_worker.h"

namespace slideway {
namespace {

constexpr std::size_t kAlignment = 4096;

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0;
}

// Touches the pages by several threads, so that registering finds them there: the system clears them one by one.
void fill_pages(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t(64) << 20;
  Threads threads(std::min(8, usable_processors()));
  threads.for_each(std::int64_t((bytes + kPiece - 1) / kPiece), [&](std::int64_t i) {
    const std::size_t begin = std::size_t(i) * kPiece, n = std::min(kPiece, bytes - begin);
    if (::madvise(data + begin, (n + kAlignment - 1) / kAlignment * kAlignment, MADV_POPULATE_WRITE) == 0)
      return;
    for (std::size_t j = 0; j < n; j += kAlignment)
      *const_cast<volatile std::byte*>(data + begin + j) = std::byte(0);
  });
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index)
      : context_(std::make_shared<CudaContext>(index)), node_(numa_node_of_pci(context_->bus_id())) {}

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override {
    return context_->name() + " (cuda:" + std::to_string(context_->index()) + ")";
  }
  bool copies() const override { return true; }

  std::uint64_t available() const override {
    context_->use();
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }

  Buffer allocate(std::size_t bytes) override {
    if (bytes == 0) return {};
    context_->use();
    void* base = get_device_memory(bytes, bytes);
    if (!is_aligned(base)) {  // small pieces share a page
      CUDA_CHECK(cudaFree(base));
      base = get_device_memory(bytes + kAlignment, bytes);
    }
    void* const data = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(base) + kAlignment - 1) /
                                               kAlignment * kAlignment);
    Buffer buffer(data, bytes, [context = context_, base](void*, std::size_t) {
      (void)cudaSetDevice(context->index());
      context->settle();  // cudaFree would wait for what may never end
      (void)cudaFree(base);
    });
    CUDA_CHECK(cudaMemset(data, 0, bytes));
    CUDA_CHECK(cudaStreamSynchronize(nullptr));  // other streams do not wait for the one that clears
    return buffer;
  }

  Buffer allocate_pinned(std::size_t bytes) override {
    if (bytes == 0) return {};
    context_->use();
    auto* data = static_cast<std::byte*>(map_pages(bytes, "pinned memory"));
    Buffer mapped(data, bytes, unmap_pages);
    prefer_node(data, bytes, node_);
    fill_pages(data, bytes);
    const cudaError_t result =
        cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (result != cudaSuccess) {
      (void)cudaGetLastError();
      fail(ErrorKind::out_of_memory, "cannot pin ", bytes,
           " bytes of host memory: ", cudaGetErrorString(result));
    }
    // Unregistered first; the mapping ends with the function that holds it.
    return {data, bytes,
            [context = context_, pages = std::make_shared<Buffer>(std::move(mapped))](void* d, std::size_t) {
              (void)cudaSetDevice(context->index());
              context->settle();
              (void)cudaHostUnregister(d);
            }};
  }

  std::unique_ptr<Stream> make_stream(const std::string& name) override {
    return std::make_unique<CudaStream>(context_, name);
  }

  std::unique_ptr<Worker> make_worker(const std::string& name) override {
    // Its copies may touch the GPU; they have a stream of their own and end before the next item begins.
    auto copies = std::make_shared<CudaStream>(context_, name + " copies");
    ThreadWorker::Surroundings surroundings;
    surroundings.begin = [context = context_, node = node_] {
      bind_thread(processors_of_node(node));
      context->use();
    };
    surroundings.copy = [copies](void* to, const void* from, std::size_t bytes) {
      CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies->handle()));
      copies->synchronize();
    };
    surroundings.check = [context = context_] { context->check(); };
    return std::make_unique<ThreadWorker>(name, std::move(surroundings));
  }

  std::unique_ptr<Event> make_event(const std::string& name) override {
    return std::make_unique<TimelineEvent>(context_->make_timeline(name),
                                           [context = context_] { context->check(); });
  }

 private:
  void* get_device_memory(std::size_t bytes, std::size_t asked) {
    void* data = nullptr;
    const cudaError_t result = cudaMalloc(&data, bytes);
    if (result == cudaSuccess) return data;
    (void)cudaGetLastError();
    std::size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    fail(result == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device, "cannot get ",
         asked, " bytes of memory on ", name(), ": ", cudaGetErrorString(result), "; ", free, " of ", total,
         " are free");
  }

  std::shared_ptr<CudaContext> context_;
  int node_;
};

}  // namespace

int cuda_devices() {
  prepare_cuda_environment();
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

}  // namespace slideway
