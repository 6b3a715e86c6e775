#include "plan/machine.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/error.h"

namespace slideway {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t(1) << 30;
constexpr double kTera = 1e12, kGiga = 1e9;

const std::vector<MachineRates> kMachines = {
    {"RTX 3090", 24 * kGiB, 64 * kTera, 25 * kGiga, 25 * kGiga, 45 * kGiga},
    {"RTX 4090", 24 * kGiB, 149 * kTera, 25 * kGiga, 25 * kGiga, 60 * kGiga},
    {"RTX 5090", 32 * kGiB, 189 * kTera, 50 * kGiga, 50 * kGiga, 70 * kGiga},
    {"A100", 80 * kGiB, 234 * kTera, 25 * kGiga, 25 * kGiga, 137 * kGiga},
    {"H100", 80 * kGiB, 740 * kTera, 55 * kGiga, 55 * kGiga, 137 * kGiga},
    {"H200", 140 * kGiB, 740 * kTera, 55 * kGiga, 55 * kGiga, 137 * kGiga},
};

// "NVIDIA GeForce RTX 4090" and "4090" → "4090"
std::string plain(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c))) out += char(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : {"nvidia", "geforce", "rtx"})
    if (const auto at = out.find(word); at != std::string::npos) out.erase(at, std::string(word).size());
  return out;
}

}  // namespace

std::span<const MachineRates> known_machines() {
  return kMachines;
}

std::string known_machine_names() {
  std::string names;
  for (const MachineRates& machine : kMachines) names += (names.empty() ? "" : ", ") + machine.name;
  return names;
}

const MachineRates& machine_named(const std::string& name) {
  for (const MachineRates& machine : kMachines)
    if (plain(machine.name) == plain(name)) return machine;
  fail(ErrorKind::not_found, "there is no machine '", name, "'; known are ", known_machine_names(),
       "; others are given by their numbers");
}

}  // namespace slideway
