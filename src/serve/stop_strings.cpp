#include "serve/stop_strings.h"

#include <algorithm>
#include <utility>

namespace slideway {

StopStrings::StopStrings(std::vector<std::string> stops, bool include)
    : stops_(std::move(stops)), include_(include) {}

// Bytes at the end of text that a stop string may begin with.
std::size_t StopStrings::uncertain(std::string_view text) const {
  std::size_t most = 0;
  for (const std::string& stop : stops_)
    for (std::size_t length = std::min(stop.size() - 1, text.size()); length > most; --length)
      if (text.ends_with(std::string_view(stop).substr(0, length))) most = length;
  return most;
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  std::string all = std::exchange(held_, {}) + std::string(text);
  // The first to begin; of two that begin together the shorter, which was whole first.
  std::size_t begin = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = all.find(stop);
    if (at > begin || at == std::string::npos) continue;
    if (at == begin && stop.size() >= found_.size()) continue;
    begin = at;
    found_ = stop;
  }
  if (begin != std::string::npos) {
    all.resize(include_ ? begin + found_.size() : begin);
    return all;
  }
  const std::size_t held = uncertain(all);
  held_ = all.substr(all.size() - held);
  all.resize(all.size() - held);
  return all;
}

std::string StopStrings::finish() {
  return stopped() ? std::string() : std::exchange(held_, {});
}

}  // namespace slideway
