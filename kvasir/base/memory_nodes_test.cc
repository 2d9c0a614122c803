#include "kvasir/base/memory_nodes.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "kvasir/base/system_info.h"

namespace kvasir {
namespace {

constexpr size_t kPages = 64;

class MemoryNodesTest : public testing::Test {
 protected:
  MemoryNodesTest()
      : data_(mmap(nullptr, Bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~MemoryNodesTest() override { munmap(data_, Bytes()); }
  static size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  static size_t Bytes() { return kPages * PageBytes(); }

  void* const data_;
};

TEST_F(MemoryNodesTest, PagesLieOnTheNodesInTurn) {
  const std::vector<int> nodes = NumaNodes();
  if (nodes.empty()) GTEST_SKIP() << "the system does not name its nodes";
  if (!SpreadOver(nodes, data_, Bytes())) GTEST_SKIP() << "the system places no memory";
  int policy = MPOL_DEFAULT;
  ASSERT_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0, data_, MPOL_F_ADDR), 0);
  EXPECT_EQ(policy, MPOL_INTERLEAVE);
  std::memset(data_, 1, Bytes());
  std::map<int, size_t> pages;  // by node
  for (size_t i = 0; i < kPages; ++i) {
    int node = -1;
    char* const page = static_cast<char*>(data_) + i * PageBytes();
    ASSERT_EQ(syscall(SYS_get_mempolicy, &node, nullptr, 0, page, MPOL_F_NODE | MPOL_F_ADDR), 0);
    ++pages[node];
  }
  EXPECT_EQ(pages.size(), nodes.size());
  for (const int node : nodes) EXPECT_NEAR(pages[node], kPages / nodes.size(), 1) << node;
}

TEST_F(MemoryNodesTest, NodesThatAreNotThereAreRefused) {
  EXPECT_FALSE(SpreadOver(std::vector<int>{1000}, data_, Bytes()));
  std::memset(data_, 1, Bytes());
}

TEST_F(MemoryNodesTest, OneNodeIsLeftAlone) {
  const size_t nodes = NodesToSpreadOver().size();
  EXPECT_NE(nodes, 1u);
  EXPECT_LE(nodes, NumaNodes().size());
}

}  // namespace
}  // namespace kvasir
