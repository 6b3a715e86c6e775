// SlotRing: a few equal buffers through which many layers pass.
//
// Layer l has slot l % size(). A slot's turn is fetch, acquire, release, in that order:
//   fetch    starts filling the slot on the copy stream, after its last user has let go of it
//   acquire  gives the slot's bytes; work put on the compute stream from then on sees the fill done
//   release  says that the work put on the compute stream so far was the last to use the slot
// Fetching what the slot already holds (same layer, same version) copies nothing.
//
// Units    bytes
// Owns     its two events; the slots' memory is the caller's and must outlive the ring
// Threads  one at a time; the streams run beside it
// Errors   internal when a turn is out of order
// Source   docs/design.md, "Sliding"
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace slideway {

class SlotRing {
 public:
  using Bytes = std::span<std::byte>;
  using Fill = std::function<void(Bytes slot, Stream& copy)>;

  SlotRing(Device& device, std::vector<Bytes> slots, Stream& copy, Stream& compute,
           const std::string& name = "slots");

  void fetch(int layer, std::uint64_t version, const Fill& fill);
  Bytes acquire(int layer);
  void release(int layer);
  int size() const { return int(slots_.size()); }
  bool fetched(int layer) const;  // its turn has begun and not ended

 private:
  struct Slot {
    Bytes bytes;
    int layer = -1;             // what it holds; -1: nothing yet
    std::uint64_t version = 0;  // the optimizer step that the bytes are of
    enum class Turn { idle, fetched, acquired } turn = Turn::idle;
    std::uint64_t filled_at = 0, freed_at = 0;  // values of the two events; 0: nothing to wait for
  };
  Slot& of(int layer) { return slots_[std::size_t(layer) % slots_.size()]; }

  std::string name_;  // in errors and in the names of its events
  std::vector<Slot> slots_;
  Stream& copy_;
  Stream& compute_;
  std::unique_ptr<Event> filled_, freed_;
  std::uint64_t fills_ = 0, frees_ = 0;
  // The highest values that the streams already wait for: lower ones hold by then.
  std::uint64_t copy_saw_freed_ = 0, compute_saw_filled_ = 0;
};

}  // namespace slideway
