// What control groups say about memory, from files as the kernel writes them.
#include "kvasir/base/system_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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

}  // namespace
}  // namespace kvasir
