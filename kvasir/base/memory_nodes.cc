#include "kvasir/base/memory_nodes.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "kvasir/base/system_info.h"

namespace kvasir {

std::vector<int> NodesToSpreadOver() {
  int policy = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0) return {};
  if (policy != MPOL_DEFAULT) return {};
  std::vector<int> nodes = NumaNodes();
  if (nodes.size() < 2) nodes.clear();
  return nodes;
}

bool SpreadOver(std::span<const int> nodes, void* data, size_t bytes) {
  constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const int node : nodes) {
    const size_t word = static_cast<size_t>(node) / kWordBits;
    if (mask.size() <= word) mask.resize(word + 1);
    mask[word] |= 1ul << (static_cast<size_t>(node) % kWordBits);
  }
  // The kernel reads one bit less than it is told.
  return syscall(SYS_mbind, data, bytes, MPOL_INTERLEAVE, mask.data(), mask.size() * kWordBits + 1,
                 0) == 0;
}

}  // namespace kvasir
