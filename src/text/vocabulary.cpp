#include "text/vocabulary.h"

#include "core/error.h"

namespace slideway {
namespace {

constexpr std::int32_t kLargestId = (1 << 24) - 1;  // a wrong number must not cost memory

}  // namespace

void Vocabulary::reserve(std::size_t tokens, std::size_t bytes) {
  entries_.reserve(tokens);
  text_.reserve(bytes);
  std::size_t slots = 16;
  while (slots < 2 * tokens) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  std::size_t slot = hash_bytes(token) & (slots_.size() - 1);
  while (slots_[slot] >= 0 && this->token(slots_[slot]) != token) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, -1);
  for (std::int32_t id = 0; id < size(); ++id) {
    if (has(id)) slots_[slot_of(token(id))] = id;
  }
}

void Vocabulary::add(std::string_view token, std::int32_t id) {
  if (id < 0 || id > kLargestId) {
    fail(ErrorKind::corrupt, "the token ", token, " has id ", id, "; ids go from 0 to ", kLargestId);
  }
  if (slots_.size() < 2 * (count_ + 1)) grow(slots_.empty() ? 16 : 2 * slots_.size());
  if (has(id)) {
    fail(ErrorKind::corrupt, "id ", id, " stands for two tokens: ", this->token(id), " and ", token);
  }
  const std::size_t slot = slot_of(token);
  if (slots_[slot] >= 0) {
    fail(ErrorKind::corrupt, "the token ", token, " has two ids: ", slots_[slot], " and ", id);
  }
  if (id >= size()) entries_.resize(static_cast<std::size_t>(id) + 1);
  entries_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(text_.size()),
                                            static_cast<std::uint32_t>(token.size())};
  text_ += token;
  slots_[slot] = id;
  ++count_;
}

std::int32_t Vocabulary::find(std::string_view token) const {
  return slots_.empty() ? -1 : slots_[slot_of(token)];
}

bool Vocabulary::has(std::int32_t id) const {
  return id >= 0 && id < size() && entries_[static_cast<std::size_t>(id)].bytes != kGap;
}

std::string_view Vocabulary::token(std::int32_t id) const {
  if (!has(id)) return {};
  const Entry entry = entries_[static_cast<std::size_t>(id)];
  return std::string_view(text_).substr(entry.at, entry.bytes);
}

}  // namespace slideway
