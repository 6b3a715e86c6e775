#include "plan/machine.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace slideway {
namespace {

TEST(Machine, IsFoundHoweverItsNameIsWritten) {
  for (const char* name : {"RTX 4090", "rtx4090", "4090", "NVIDIA GeForce RTX 4090"})
    EXPECT_EQ(machine_named(name).name, "RTX 4090") << name;
  EXPECT_EQ(machine_named("NVIDIA H200").name, "H200");
}

TEST(Machine, UnknownOnesAreRefusedWithTheKnownOnes) {
  expect_error(ErrorKind::not_found, {"RTX 2060", "RTX 3090", "numbers"}, [] { machine_named("RTX 2060"); });
}

TEST(Machine, EveryKnownOneHasAllItsNumbers) {
  for (const MachineRates& machine : known_machines()) {
    EXPECT_GT(machine.gpu_bytes, std::uint64_t(20) << 30) << machine.name;
    for (const double rate : {machine.product_flops, machine.copy_up, machine.copy_down, machine.dram})
      EXPECT_GT(rate, 1e9) << machine.name;
  }
}

}  // namespace
}  // namespace slideway
