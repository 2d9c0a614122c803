// What control groups say about memory and which cores count, from files as the kernel writes them.
#include "kvasir/base/system_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kvasir {
namespace {

class ControlGroupTest : public testing::Test {
 protected:
  ControlGroupTest() : folder_(testing::TempDir() + "kvasir_control_group") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~ControlGroupTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }

  const std::string folder_;
};

TEST_F(ControlGroupTest, Version2) {
  EXPECT_FALSE(ControlGroupFreeBytes(folder_).has_value());
  Write("memory.current", "700\n");
  Write("memory.max", "max\n");
  EXPECT_FALSE(ControlGroupFreeBytes(folder_).has_value());
  Write("memory.max", "1000\n");
  EXPECT_EQ(ControlGroupFreeBytes(folder_), 300u);
  Write("memory.stat", "anon 600\ninactive_file 50\nactive_file 7\n");
  EXPECT_EQ(ControlGroupFreeBytes(folder_), 350u);
  Write("memory.current", "1200\n");  // a limit that was lowered
  EXPECT_EQ(ControlGroupFreeBytes(folder_), 0u);
}

TEST_F(ControlGroupTest, Version1) {
  Write("memory.usage_in_bytes", "700\n");
  Write("memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(ControlGroupFreeBytes(folder_).has_value());
  Write("memory.limit_in_bytes", "1000\n");
  Write("memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
  EXPECT_EQ(ControlGroupFreeBytes(folder_), 400u);
}

TEST_F(ControlGroupTest, ThisMachineHasSomeMemory) {
  EXPECT_GT(AvailableMemoryBytes(), size_t{1} << 20);
}

class AvailableCoresTest : public testing::Test {
 protected:
  AvailableCoresTest() : root_(testing::TempDir() + "kvasir_cores") {
    std::filesystem::remove_all(root_);
  }
  ~AvailableCoresTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // Four cores of two hardware threads: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
  void WriteThreads() {
    for (int cpu = 0; cpu < 8; ++cpu) {
      const std::string core = std::to_string(cpu % 4);
      Write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            core + "," + std::to_string(cpu % 4 + 4) + "\n");
    }
  }
  int Cores(const std::vector<int>& cpus) { return AvailableCores(cpus, root_); }

  const std::string root_;
  const std::vector<int> all_ = {0, 1, 2, 3, 4, 5, 6, 7};
};

TEST_F(AvailableCoresTest, NodesOfTheAllowedThreads) {
  EXPECT_EQ(NumaNodes(all_, root_), std::vector<int>());
  WriteThreads();
  EXPECT_EQ(NumaNodes(all_, root_), std::vector<int>());
  for (const int cpu : all_) {
    const int node = cpu % 2 == 0 ? 12 : 3;
    Write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/node" + std::to_string(node), "");
  }
  EXPECT_EQ(NumaNodes(all_, root_), (std::vector<int>{3, 12}));
  EXPECT_EQ(NumaNodes(std::vector<int>{4, 6}, root_), std::vector<int>{12});
  // Names that are no nodes.
  Write("sys/devices/system/cpu/cpu0/node", "");
  Write("sys/devices/system/cpu/cpu0/node1x", "");
  EXPECT_EQ(NumaNodes(std::vector<int>{0}, root_), std::vector<int>{12});
}

TEST_F(AvailableCoresTest, ThreadsOfACoreCountOnce) {
  WriteThreads();
  EXPECT_EQ(Cores(all_), 4);
  EXPECT_EQ(Cores({1, 5}), 1);
  EXPECT_EQ(Cores({1, 4, 5, 6}), 3);
}

TEST_F(AvailableCoresTest, WithoutFilesEveryThreadCounts) {
  EXPECT_EQ(Cores(all_), 8);
  EXPECT_EQ(Cores({3}), 1);
  EXPECT_EQ(Cores({}), 1);
}

TEST_F(AvailableCoresTest, TimeOfControlGroups) {
  WriteThreads();
  Write("sys/fs/cgroup/cpu.max", "150000 100000\n");  // as a container sees its own
  EXPECT_EQ(Cores(all_), 2);
  EXPECT_EQ(Cores({1, 5}), 1);
  Write("sys/fs/cgroup/cpu.max", "1000 100000\n");
  EXPECT_EQ(Cores(all_), 1);
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores(all_), 4);
  Write("sys/fs/cgroup/cpu.max", "rubbish\n");
  EXPECT_EQ(Cores(all_), 4);
}

TEST_F(AvailableCoresTest, LimitsOfEnclosingControlGroupsHold) {
  WriteThreads();
  Write("proc/self/cgroup", "0::/user.slice/session/scope\n");
  Write("sys/fs/cgroup/user.slice/session/scope/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores(all_), 4);
  Write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(Cores(all_), 3);
  Write("sys/fs/cgroup/user.slice/session/scope/cpu.max", "200000 100000\n");
  EXPECT_EQ(Cores(all_), 2);
}

TEST_F(AvailableCoresTest, Version1) {
  WriteThreads();
  Write("proc/self/cgroup", "3:cpuset:/other\n2:cpu,cpuacct:/job\n0::/\n");
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(Cores(all_), 4);
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "75000\n");
  EXPECT_EQ(Cores(all_), 2);
}

TEST_F(AvailableCoresTest, ThisMachineHasOne) { EXPECT_GE(AvailableCores(), 1); }

}  // namespace
}  // namespace kvasir
