#include "kvasir/kv/eviction.h"

#include <algorithm>

#include "kvasir/tensor/kv_codec.h"

namespace kvasir {
namespace {

constexpr int64_t kEmpty = -1;

// The kept rows of one old block: kept[begin, end).
struct OldBlock {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t place = kEmpty;  // new block; kEmpty: its rows fill gaps

  int64_t rows() const { return end - begin; }
};

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

std::vector<OldBlock> BlocksOf(std::span<const int64_t> kept) {
  std::vector<OldBlock> blocks;
  for (int64_t i = 0; i < static_cast<int64_t>(kept.size()); ++i) {
    if (i == 0 || kept[i] / kBlockTokens != kept[i - 1] / kBlockTokens) blocks.push_back({i, i});
    blocks.back().end = i + 1;
  }
  return blocks;
}

// Gives the fullest of `blocks` the places [begin, end), in order.
void Place(std::span<OldBlock> blocks, int64_t begin, int64_t end) {
  const auto places = static_cast<size_t>(std::max<int64_t>(0, end - begin));
  std::vector<OldBlock*> fullest;
  for (OldBlock& block : blocks) fullest.push_back(&block);
  std::stable_sort(fullest.begin(), fullest.end(),
                   [](const OldBlock* a, const OldBlock* b) { return a->rows() > b->rows(); });
  fullest.resize(std::min(places, fullest.size()));
  std::sort(fullest.begin(), fullest.end());
  for (OldBlock* block : fullest) block->place = begin++;
}

}  // namespace

std::vector<int64_t> ArrangeRows(std::span<const int64_t> kept, const RowArrangement& arrangement) {
  const int64_t tail = TailOf(kept, arrangement.recent);
  std::vector<int64_t> source(kept.size(), kEmpty);
  std::copy(kept.begin() + tail, kept.end(), source.begin() + tail);

  const int64_t end_block = tail / kBlockTokens;
  std::vector<OldBlock> blocks = BlocksOf(kept.first(static_cast<size_t>(tail)));
  const auto others = std::find_if(blocks.begin(), blocks.end(), [&](const OldBlock& block) {
    return kept[block.begin] / kBlockTokens >= arrangement.dense_blocks;
  });
  Place({blocks.begin(), others}, 0, std::min(arrangement.dense_blocks, end_block));
  Place({others, blocks.end()}, arrangement.dense_blocks, end_block);

  std::vector<int64_t> rest;
  for (const OldBlock& block : blocks) {
    for (int64_t i = block.begin; i < block.end; ++i) {
      if (block.place == kEmpty) {
        rest.push_back(kept[i]);
      } else {
        source[block.place * kBlockTokens + kept[i] % kBlockTokens] = kept[i];
      }
    }
  }
  auto row = rest.begin();
  for (int64_t i = 0; i < tail; ++i) {
    if (source[i] == kEmpty) source[i] = *row++;
  }
  return source;
}

}  // namespace kvasir
