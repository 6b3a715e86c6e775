// CpuLevel: the instruction sets that kernels are written for, chosen while the program runs.
//
// Every build runs on AVX2 and FMA (x86-64-v3); files named *_avx512.cpp are called only where the machine has AVX-512. The
// environment variable SLIDEWAY_CPU_LEVEL (scalar, avx2, avx512) forces a lower level than the machine's. A level changes
// the speed of a kernel, never its bits.
#pragma once

#include <string_view>
#include <vector>

namespace slideway {

enum class CpuLevel { scalar, avx2, avx512 };

std::vector<CpuLevel> cpu_levels();  // those this machine has, ascending
CpuLevel best_cpu_level();           // the highest, unless SLIDEWAY_CPU_LEVEL names a lower one
std::string_view name_of(CpuLevel level);

}  // namespace slideway
