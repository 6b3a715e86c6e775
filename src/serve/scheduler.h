// Scheduler: which sequences take part in the next step, and with how many rows.
//
// A pure function of what is running: no clock, no device, no threads. Every sequence keeps two counts, so that a step
// may be planned before the tokens of the step before are known:
//   known      tokens whose ids are known, or will be when the steps under way are done
//   scheduled  of these, the first ones whose keys and values are written, or will be
// A sequence with one token to go decodes; one with more still reads its prompt, in chunks of what the budget leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slideway {

struct SequenceProgress {
  std::int64_t scheduled = 0;
  std::int64_t known = 0;
};

struct StepBudget {
  std::int64_t rows = 0;  // at least one a running sequence
};

// Rows of one sequence in a step: its next `rows` tokens.
struct StepShare {
  std::size_t sequence = 0;
  std::int64_t rows = 0;
};

// running: in order of arrival. Decoding goes first, so that a long prompt delays nobody by more than a step; then
// prompts in order of arrival. Shares come in ascending order of sequence.
void plan_step(std::span<const SequenceProgress> running, const StepBudget& budget,
               std::vector<StepShare>& out);

}  // namespace slideway
