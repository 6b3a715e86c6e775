#include "serve/scheduler.h"

#include <algorithm>

#include "core/error.h"

namespace slideway {

void plan_step(std::span<const SequenceProgress> running, const StepBudget& budget,
               std::vector<StepShare>& out) {
  CHECK(std::int64_t(running.size()) <= budget.rows);
  out.clear();
  std::int64_t left = budget.rows;
  for (const SequenceProgress& s : running) left -= s.known - s.scheduled == 1;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const std::int64_t wanted = running[i].known - running[i].scheduled;
    std::int64_t rows = wanted;
    if (wanted > 1) {
      rows = std::min(wanted, left);
      left -= rows;
    }
    if (rows > 0) out.push_back({i, rows});
  }
}

}  // namespace slideway
