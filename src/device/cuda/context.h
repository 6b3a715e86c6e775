// CudaContext: what the streams, events and buffers of one GPU share.
//
// Waits and signals on streams are stream memory operations on pinned words, found in the driver at run time, so that
// the program also starts where there is no driver. CUDA does not see this order. Three things would therefore wait for
// streams that in turn wait for the host, and are kept away from:
//   - streams that share a hardware queue: as many queues as there can be are asked for
//   - loading a kernel at its first launch: all are loaded at the start
//   - freeing memory, which waits for the whole device: see settle()
//
// Owns     the words of all events, until it ends; streams, events and buffers hold it
// Threads  any
// Errors   device; unsupported where the GPU or driver lacks stream memory operations
// Source   CUDA driver API, "Stream Memory Operations"
#pragma once

#include <cuda.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/check.h"
#include "device/timeline.h"

namespace slideway {

// To be called before the first call that starts CUDA in this process. What the user has set stays.
void prepare_cuda_environment();

class CudaContext : public std::enable_shared_from_this<CudaContext> {
 public:
  explicit CudaContext(int index);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  void use() const { CUDA_CHECK(cudaSetDevice(index_)); }  // makes this GPU the calling thread's
  int index() const { return index_; }
  const std::string& name() const { return name_; }
  const std::string& bus_id() const { return bus_id_; }

  std::shared_ptr<Timeline> make_timeline(const std::string& name);
  void stream_write(cudaStream_t stream, const Timeline& timeline, std::uint64_t value) const;
  void stream_wait(cudaStream_t stream, const std::shared_ptr<Timeline>& timeline, std::uint64_t value);

  void add(cudaStream_t stream, const std::string& name);
  void remove(cudaStream_t stream);
  // Throws if any stream has failed: what it was to signal will not come. Never calls CUDA: a thread that launches holds
  // the driver's lock while a stream's queue is full, perhaps of work that waits for the thread that checks.
  void check();
  // "stream 'upload' waits for event 'updated' to reach 7 (it is at 5); …"
  std::string waiting_text();

  // Before memory or a stream is given back, which waits for the device: returns when no stream waits for an event. If
  // for some seconds one does and nothing moves, the host has failed before it gave a signal; then all words are raised
  // so that everything runs out.
  void settle() noexcept;

 private:
  struct Wait {
    std::shared_ptr<Timeline> timeline;
    std::uint64_t value;
  };
  struct Known {
    cudaStream_t stream;
    std::string name;
    std::vector<Wait> waits;  // issued, and not known to be over
  };
  void find_operations();
  void watch();  // the watcher's life: asks for failures, now and then
  void query();  // throws what a stream has failed with
  // The sum of the values of all events that streams wait for; none if no stream waits.
  std::optional<std::uint64_t> waited_values();
  void release_all();

  const int index_;
  std::string name_, bus_id_;
  CUresult (*write_value_)(CUstream, CUdeviceptr, cuuint64_t, unsigned) = nullptr;
  CUresult (*wait_value_)(CUstream, CUdeviceptr, cuuint64_t, unsigned) = nullptr;
  std::mutex streams_mutex_;
  std::vector<Known> streams_;
  std::mutex words_mutex_;             // taken after streams_mutex_, if both
  std::vector<std::uint64_t*> pages_;  // of words, one cache line each
  std::vector<std::uint64_t*> spare_;  // words that no timeline has

  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first
  std::atomic<bool> failed_{false}, stopping_{false};
  std::thread watcher_;  // last: it uses the others
};

}  // namespace slideway
