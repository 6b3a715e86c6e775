#include "device/numa.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "device/device.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(Numa, FindsTheNodeOfADeviceAndItsProcessors) {
  const TemporaryFolder sys;
  put(sys / "bus/pci/devices/0000:ab:00.0/numa_node", "1\n");
  put(sys / "devices/system/node/node1/cpulist", "4-6,9,12-13\n");
  EXPECT_EQ(numa_node_of_pci("0000:AB:00.0", sys.path()), 1);
  EXPECT_EQ(processors_of_node(1, sys.path()), (std::vector<int>{4, 5, 6, 9, 12, 13}));
}

TEST(Numa, KnowsNothingWhereTheSystemSaysNothing) {
  const TemporaryFolder sys;
  EXPECT_EQ(numa_node_of_pci("0000:ab:00.0", sys.path()), -1);
  EXPECT_TRUE(processors_of_node(-1, sys.path()).empty());
}

TEST(Numa, BindsAThreadToThoseProcessorsItMayUse) {
  std::thread([] {
    cpu_set_t before, after;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    int one = 0;
    while (!CPU_ISSET(one, &before)) ++one;
    bind_thread({});  // nothing known: nothing done
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
    bind_thread({one, CPU_SETSIZE - 1});
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_EQ(CPU_COUNT(&after), 1);
    EXPECT_TRUE(CPU_ISSET(one, &after));
  }).join();
}

TEST(Numa, PreferringANodeLeavesMemoryUsable) {
  const auto device = make_host_device();
  const Buffer buffer = device->allocate(1 << 16);
  for (const int node : {-1, 0, 5000}) prefer_node(buffer.data(), buffer.bytes(), node);
  for (std::size_t i = 0; i < buffer.bytes(); ++i) buffer.data()[i] = std::byte(i);
  EXPECT_EQ(buffer.data()[300], std::byte(300 & 255));
}

}  // namespace
}  // namespace slideway
