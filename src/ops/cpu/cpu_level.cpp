#include "ops/cpu/cpu_level.h"

#include <cstdlib>
#include <string>

#include "core/error.h"

namespace slideway {
namespace {

CpuLevel chosen_level() {
  const std::vector<CpuLevel> levels = cpu_levels();
  const char* const wanted = std::getenv("SLIDEWAY_CPU_LEVEL");
  if (!wanted || !*wanted) return levels.back();
  std::string known;
  for (const CpuLevel level : levels) {
    if (name_of(level) == wanted) return level;
    known += known.empty() ? "" : ", ";
    known += name_of(level);
  }
  fail(ErrorKind::invalid_input, "SLIDEWAY_CPU_LEVEL is '", wanted, "'; this machine has ", known);
}

}  // namespace

std::vector<CpuLevel> cpu_levels() {
  std::vector<CpuLevel> levels{CpuLevel::scalar, CpuLevel::avx2};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd")) {
    levels.push_back(CpuLevel::avx512);
  }
  return levels;
}

CpuLevel best_cpu_level() {
  static const CpuLevel level = chosen_level();
  return level;
}

std::string_view name_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::scalar:
      return "scalar";
    case CpuLevel::avx2:
      return "avx2";
    case CpuLevel::avx512:
      return "avx512";
  }
  return "?";
}

}  // namespace slideway
