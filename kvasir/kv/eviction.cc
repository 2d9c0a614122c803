#include "kvasir/kv/eviction.h"

#include <algorithm>
#include <numeric>

#include "kvasir/tensor/kv_codec.h"

namespace kvasir {
namespace {

constexpr int64_t kEmpty = -1;

// Index in `kept` of the first row of the last rows.
int64_t TailOf(std::span<const int64_t> kept, int64_t recent) {
  const auto total = static_cast<int64_t>(kept.size());
  int64_t tail = total - std::min(recent, total);
  while (tail > 0 && tail < total && kept[tail] % kBlockTokens != 0 &&
         kept[tail - 1] == kept[tail] - 1) {
    --tail;
  }
  return tail;
}

bool IsWholeBlock(std::span<const int64_t> kept, int64_t begin, int64_t end) {
  return kept[begin] % kBlockTokens == 0 && begin + kBlockTokens <= end &&
         kept[begin + kBlockTokens - 1] == kept[begin] + kBlockTokens - 1;
}

}  // namespace

std::vector<int64_t> ArrangeRows(std::span<const int64_t> kept, const RowArrangement& arrangement) {
  const int64_t tail = TailOf(kept, arrangement.recent);
  std::vector<int64_t> source(kept.size(), kEmpty);
  std::copy(kept.begin() + tail, kept.end(), source.begin() + tail);

  const int64_t end_block = tail / kBlockTokens;
  int64_t next_dense = 0;
  int64_t next_other = arrangement.dense_blocks;
  std::vector<int64_t> rest;
  for (int64_t i = 0; i < tail;) {
    const bool dense = kept[i] / kBlockTokens < arrangement.dense_blocks;
    int64_t& next = dense ? next_dense : next_other;
    const int64_t end = dense ? std::min(arrangement.dense_blocks, end_block) : end_block;
    if (next < end && IsWholeBlock(kept, i, tail)) {
      const auto place = source.begin() + next * kBlockTokens;
      std::iota(place, place + kBlockTokens, kept[i]);
      ++next;
      i += kBlockTokens;
    } else {
      rest.push_back(kept[i++]);
    }
  }
  auto row = rest.begin();
  for (int64_t i = 0; i < tail; ++i) {
    if (source[i] == kEmpty) source[i] = *row++;
  }
  return source;
}

}  // namespace kvasir
