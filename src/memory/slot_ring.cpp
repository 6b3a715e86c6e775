#include "memory/slot_ring.h"

#include <string_view>

namespace slideway {

SlotRing::SlotRing(Device& device, std::vector<Bytes> slots, Stream& copy, Stream& compute,
                   const std::string& name)
    : name_(name),
      copy_(copy),
      compute_(compute),
      filled_(device.make_event(name + " filled")),
      freed_(device.make_event(name + " freed")) {
  CHECK(!slots.empty(), "a slot ring has at least one slot");
  for (const Bytes bytes : slots) slots_.push_back({.bytes = bytes});
}

void SlotRing::fetch(int layer, std::uint64_t version, const Fill& fill) {
  Slot& slot = of(layer);
  CHECK(slot.turn == Slot::Turn::idle, name_, ": layer ", layer, " was fetched before layer ", slot.layer,
        ", which has the same slot, was released");
  if (slot.layer != layer || slot.version != version) {
    slot.layer = -1;  // if fill throws, the slot holds nothing
    if (slot.freed_at > copy_saw_freed_) copy_.wait(*freed_, copy_saw_freed_ = slot.freed_at);
    fill(slot.bytes, copy_);
    copy_.signal(*filled_, ++fills_);
    slot.filled_at = fills_;
    slot.layer = layer;
    slot.version = version;
  }
  slot.turn = Slot::Turn::fetched;
}

SlotRing::Bytes SlotRing::acquire(int layer) {
  Slot& slot = of(layer);
  CHECK(slot.turn == Slot::Turn::fetched && slot.layer == layer, name_, ": layer ", layer,
        " was acquired without being fetched; its slot holds layer ", slot.layer);
  if (slot.filled_at > compute_saw_filled_) compute_.wait(*filled_, compute_saw_filled_ = slot.filled_at);
  slot.turn = Slot::Turn::acquired;
  return slot.bytes;
}

void SlotRing::release(int layer) {
  Slot& slot = of(layer);
  CHECK(slot.turn == Slot::Turn::acquired && slot.layer == layer, name_, ": layer ", layer,
        " was released without being acquired; its slot holds layer ", slot.layer);
  compute_.signal(*freed_, ++frees_);
  slot.freed_at = frees_;
  slot.turn = Slot::Turn::idle;
}

bool SlotRing::fetched(int layer) const {
  const Slot& slot = slots_[std::size_t(layer) % slots_.size()];
  return slot.layer == layer && slot.turn != Slot::Turn::idle;
}

}  // namespace slideway
