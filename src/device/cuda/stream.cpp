#include "device/cuda/stream.h"

namespace slideway {
namespace {

void check_copyable(const void* memory, const char* what, const std::string& stream) {
  cudaPointerAttributes attributes;
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
  CHECK(attributes.type != cudaMemoryTypeUnregistered, "stream '", stream, "' was to copy ", what,
        " memory that is neither the device's nor pinned");
}

}  // namespace

CudaStream::CudaStream(std::shared_ptr<CudaContext> context, std::string name)
    : context_(std::move(context)), name_(std::move(name)) {
  context_->use();
  CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
  context_->add(handle_, name_);
}

CudaStream::~CudaStream() {
  (void)cudaSetDevice(context_->index());
  context_->settle();
  (void)cudaStreamSynchronize(
      handle_);  // the words that it may still write must not have another user by then
  context_->remove(handle_);
  (void)cudaStreamDestroy(handle_);
  (void)cudaGetLastError();
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  context_->use();
  check_copyable(to, "into", name_);
  check_copyable(from, "from", name_);
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_));
}

void CudaStream::signal(Event& event, std::uint64_t value) {
  context_->use();
  context_->stream_write(handle_, *TimelineEvent::timeline_of(event), value);
}

void CudaStream::wait(Event& event, std::uint64_t value) {
  context_->use();
  context_->stream_wait(handle_, TimelineEvent::timeline_of(event), value);
}

void CudaStream::synchronize() {
  context_->use();
  const Patience::Check check = [&] { context_->check(); };
  Patience patience(check,
                    [&] { return "the host waits for stream '" + name_ + "'; " + context_->waiting_text(); });
  for (cudaError_t result; (result = cudaStreamQuery(handle_)) != cudaSuccess;) {
    (void)cudaGetLastError();
    if (result != cudaErrorNotReady) CUDA_CHECK(result);
    patience.pause();
  }
}

CudaStream& cuda_stream(Stream& stream) {
  auto* found = dynamic_cast<CudaStream*>(&stream);
  CHECK(found, "a stream of another device was given to CUDA");
  return *found;
}

}  // namespace slideway
