#include "kvasir/backend/cpu_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <span>

#include "kvasir/backend/block_attention.h"
#include "kvasir/backend/softmax_state.h"
#include "kvasir/backend/tile_kernels.h"
#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/check.h"
#include "kvasir/base/math_constants.h"
#include "kvasir/kernels/derived_keys.h"

namespace kvasir {
namespace {

// Query rows of one tile: enough to reuse a block's keys from registers many times, few enough
// that scores and accumulators (64 x 64 and 64 x 128 floats) stay in the second-level cache.
constexpr int64_t kTileRows = 64;

// A contiguous part of what a query may see, in the order in which they are merged: the kept head
// rows and the main range as stored, then of both what is read from the recent copies.
enum class Segment { kHead, kMain, kRecentHead, kRecent };
constexpr Segment kSegments[] = {Segment::kHead, Segment::kMain, Segment::kRecentHead,
                                 Segment::kRecent};

bool IsRecent(Segment segment) { return segment >= Segment::kRecentHead; }

struct RowRange {
  int64_t begin;
  int64_t end;
};

// Empty ranges may have end < begin.
RowRange RangeOf(const KvLayout& layout, const VisibleRows& visible, Segment segment) {
  const int64_t recent = layout.dense_recent > 0 ? layout.RecentBegin(visible.end - 1)
                                                 : std::numeric_limits<int64_t>::max();
  switch (segment) {
    case Segment::kHead:
      return {0, std::min(visible.head_end, recent)};
    case Segment::kMain:
      return {visible.begin, std::min(visible.end, recent)};
    case Segment::kRecentHead:
      return {recent, visible.head_end};
    case Segment::kRecent:
      return {std::max(visible.begin, recent), visible.end};
  }
  return {0, 0};
}

// Rows of one segment in blocks of one layout, whose softmax starts from an empty state.
struct Partition {
  Segment segment;
  RowRange rows;
  KvBlockLayout layout;
};

}  // namespace

// Queries of some tokens of one run that share a KV head: row i of the tile is token
// token_begin + i / group, query head kv_head * group + i % group.
struct CpuAttention::Tile {
  const KvRun* run;
  int64_t token_begin;
  int64_t tokens;
  int kv_head;
};

struct CpuAttention::Scratch : BlockScratch {
  AlignedVector<float> totals;   // SoftmaxTotals
  AlignedVector<float> partial;  // SoftmaxState
  AlignedVector<float> derived;  // [key_dim, 64]: the keys of a block, if they are from-value
  std::vector<Partition> partitions;
  std::vector<RowRange> ranges;  // [tokens]: what each sees of the segment at hand

  void Resize(int64_t rows, const KvLayout& layout) {
    BlockScratch::Resize(rows, layout);
    totals.resize(SoftmaxTotals::Floats(rows, layout));
    partial.resize(SoftmaxState::Floats(rows, layout.value_dim));
    if (layout.key_codec.kind == KvCodec::Kind::kFromValue) {
      derived.resize(static_cast<size_t>(layout.key_dim) * kBlockTokens);
    }
  }
  size_t bytes() const {
    return BlockScratch::bytes() +
           (totals.capacity() + partial.capacity() + derived.capacity()) * sizeof(float) +
           partitions.capacity() * sizeof(Partition) + ranges.capacity() * sizeof(RowRange);
  }
};

namespace {

int64_t GroupOf(const AttendArgs& args) { return args.query_heads / args.layout.kv_heads; }

const VisibleRows& VisibleOf(const AttendArgs& args, const KvRun& run, int64_t token) {
  return args.visible[static_cast<size_t>(run.step_row + token)];
}

// The tile's queries as the keys of such blocks need them, if they are multiplied as integers.
void QuantizeQueries(const TileKernels& kernels, const KvBlockLayout& layout, int64_t rows,
                     const BlockScratch& scratch, IntegerQueryRows& integers) {
  const KvCodec& codec = layout.key_codec;
  const IntegerKvKernels* const integer = kernels.IntegerKeys(layout);
  if (integer == nullptr) return;
  integers.Resize(rows, codec, layout.key_dim);
  integer->quantize_queries(
      {.queries = (codec.rotates() ? scratch.rotated : scratch.queries).data(),
       .query_stride = layout.key_dim,
       .rows = rows,
       .dim = layout.key_dim,
       .codec = codec,
       .unit = kernels.InBase2(layout) ? math::kLog2E : 1.0f,
       .out = integers.view()});
}

// Copies the tile's queries side by side and scales them; once more rotated, and as integers, if
// keys need it.
template <typename Tile, typename Scratch>
void LoadQueries(const TileKernels& kernels, const AttendArgs& args, const Tile& tile,
                 Scratch& scratch) {
  const int64_t group = GroupOf(args);
  const int64_t dim = args.layout.key_dim;
  const int64_t rows = tile.tokens * group;
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const float* row = args.queries.row(tile.run->step_row + tile.token_begin + token) +
                       tile.kv_head * group * dim;
    float* const out = scratch.queries.data() + token * group * dim;
    std::copy_n(row, group * dim, out);
    kernels.table.scale(out, args.scale, group * dim);
  }
  const KvCodec& codec = args.layout.key_codec;
  if (kernels.HasPairs(codec, dim) || kernels.HasPairs(args.layout.dense_codec, dim)) {
    kernels.table.round_rows(scratch.queries.data(), dim, rows, dim, scratch.rounded.data());
  }
  if (codec.rotates()) {
    std::copy_n(scratch.queries.data(), rows * dim, scratch.rotated.data());
    kernels.table.rotate(scratch.rotated.data(), dim, rows, dim);
  }
  const int64_t packed_from = args.layout.dense_start / kBlockTokens;
  const KvBlockLayout packed = args.layout.BlockAt(packed_from);
  QuantizeQueries(kernels, packed, rows, scratch, scratch.integers);
  if (kernels.IsAdaptive(packed)) {
    scratch.adaptive.Resize(rows);
    QuantizeQueries(kernels.WithOneByte(), packed, rows, scratch, scratch.adaptive.integers);
  }
  if (args.layout.dense_start > 0 || args.layout.dense_recent > 0) {
    QuantizeQueries(kernels, args.layout.RecentBlock(), rows, scratch, scratch.dense_integers);
  }
}

template <typename Tile>
RowRange RangeOf(const AttendArgs& args, const Tile& tile, int64_t token, Segment segment) {
  return RangeOf(args.layout, VisibleOf(args, *tile.run, tile.token_begin + token), segment);
}

// The rows that at least one query of the tile sees in `segment`.
template <typename Tile>
RowRange UnionRange(const AttendArgs& args, const Tile& tile, Segment segment) {
  RowRange all = {std::numeric_limits<int64_t>::max(), 0};
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const RowRange one = RangeOf(args, tile, token, segment);
    if (one.begin >= one.end) continue;
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  return all.begin < all.end ? all : RowRange{0, 0};
}

// Calls body(partition) for every partition that the tile sees, in merge order.
template <typename Tile, typename Body>
void ForEachPartition(const AttendArgs& args, const Tile& tile, const Body& body) {
  const KvLayout& layout = args.layout;
  for (const Segment segment : kSegments) {
    const RowRange all = UnionRange(args, tile, segment);
    for (int64_t begin = all.begin; begin < all.end;) {
      int64_t end = std::min(all.end, (begin / kPartitionRows + 1) * kPartitionRows);
      if (!IsRecent(segment) && begin < layout.dense_start) end = std::min(end, layout.dense_start);
      body(Partition{
          segment,
          {begin, end},
          IsRecent(segment) ? layout.RecentBlock() : layout.BlockAt(begin / kBlockTokens)});
      begin = end;
    }
  }
}

// Leaves what each token of the tile sees in `segment`, and returns what all of them see.
template <typename Tile, typename Scratch>
RowRange LoadRanges(const AttendArgs& args, const Tile& tile, Segment segment, Scratch& scratch) {
  RowRange common = {0, std::numeric_limits<int64_t>::max()};
  scratch.ranges.resize(static_cast<size_t>(tile.tokens));
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const RowRange range = RangeOf(args, tile, token, segment);
    scratch.ranges[static_cast<size_t>(token)] = range;
    common = {std::max(common.begin, range.begin), std::min(common.end, range.end)};
  }
  return common;
}

// Which rows of the block each query of the tile sees, from LoadRanges.
template <typename Scratch>
void LoadVisible(RowRange common, int64_t group, int64_t block, Scratch& scratch) {
  const int64_t first = block * kBlockTokens;
  if (common.begin <= first && first + kBlockTokens <= common.end) {
    std::fill(scratch.begin.begin(), scratch.begin.end(), 0);
    std::fill(scratch.end.begin(), scratch.end.end(), static_cast<int32_t>(kBlockTokens));
    return;
  }
  int32_t* begins = scratch.begin.data();
  int32_t* ends = scratch.end.data();
  for (const RowRange& range : scratch.ranges) {
    const int64_t begin = std::clamp<int64_t>(range.begin - first, 0, kBlockTokens);
    const int64_t end = std::clamp<int64_t>(range.end - first, begin, kBlockTokens);
    begins = std::fill_n(begins, group, static_cast<int32_t>(begin));
    ends = std::fill_n(ends, group, static_cast<int32_t>(end));
  }
}

// The keys of one block for one head, derived from its values into scratch.
template <typename Tile, typename Scratch>
const std::byte* DerivedKeys(Isa isa, const AttendArgs& args, const Tile& tile,
                             const KvBlockLayout& layout, int64_t block, const std::byte* values,
                             RowRange visible, Scratch& scratch) {
  const int64_t first = block * kBlockTokens;
  std::array<Position, kBlockTokens> positions;
  const std::span<const Position> given = tile.run->positions;
  for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
    const auto row = static_cast<size_t>(first + slot);
    positions[static_cast<size_t>(slot)] = row < given.size() ? given[row] : first + slot;
  }
  DeriveKeys(isa, {.derivation = args.derivation,
                   .layout = &layout,
                   .values = values,
                   .positions = positions,
                   .begin = static_cast<int>(std::max<int64_t>(visible.begin - first, 0)),
                   .end = static_cast<int>(std::min<int64_t>(visible.end - first, kBlockTokens)),
                   .tile = scratch.derived.data()});
  return reinterpret_cast<const std::byte*>(scratch.derived.data());
}

template <typename Tile>
const KvBlocksView& BlocksOf(const Tile& tile, Segment segment) {
  return IsRecent(segment) ? tile.run->recent : tile.run->kv;
}

// What a partition begins with.
template <typename Tile>
HeadPlanes FirstPlanes(const Tile& tile, const Partition& partition) {
  return HeadPlanes::Of(
      partition.layout, tile.kv_head,
      BlocksOf(tile, partition.segment).block(partition.rows.begin / kBlockTokens));
}

// One partition, from an empty state. after() is called when its last block is begun and says what
// is read behind it.
template <typename Tile, typename Scratch, typename After>
void AttendPartition(const TileKernels& kernels, const AttendArgs& args, const Tile& tile,
                     const Partition& partition, const After& after, Scratch& scratch,
                     const SoftmaxState& state) {
  const KvBlockLayout& layout = partition.layout;
  const int64_t rows = tile.tokens * GroupOf(args);
  const KvBlocksView& kv = BlocksOf(tile, partition.segment);
  const bool is_packed =
      layout.key_codec == args.layout.key_codec && layout.value_codec == args.layout.value_codec;
  IntegerQueryRows& integers = is_packed ? scratch.integers : scratch.dense_integers;
  const bool is_adaptive = kernels.IsAdaptive(layout);
  state.Reset(rows, layout.value_dim);
  const RowRange common = LoadRanges(args, tile, partition.segment, scratch);
  for (int64_t block = partition.rows.begin / kBlockTokens;
       block * kBlockTokens < partition.rows.end; ++block) {
    LoadVisible(common, GroupOf(args), block, scratch);
    HeadPlanes planes = HeadPlanes::Of(layout, tile.kv_head, kv.block(block));
    const bool is_last = (block + 1) * kBlockTokens >= partition.rows.end;
    const Upcoming upcoming(
        kernels.fetch_into, planes,
        is_last ? after() : HeadPlanes::Of(layout, tile.kv_head, kv.block(block + 1)),
        kernels.IntegerValues(layout) != nullptr);
    if (planes.keys == nullptr) {
      planes.keys = DerivedKeys(kernels.table.isa, args, tile, layout, block, planes.values,
                                partition.rows, scratch);
    }
    const BlockArgs step = {args, layout, planes, upcoming, rows, scratch, state};
    // The first block that a row sees is decisive for it.
    if (is_adaptive && block * kBlockTokens > partition.rows.begin) {
      AttendAdaptively(kernels, step);
    } else {
      AttendBlock(kernels, step, integers.view());
    }
  }
  if (kernels.IntegerValues(layout) != nullptr) {
    for (int64_t r = 0; r < rows; ++r) state.max[r] *= math::kLn2;
  }
}

template <typename Tile>
void StoreOutput(const KernelTable& kernels, const AttendArgs& args, const Tile& tile,
                 const SoftmaxState& total) {
  const int64_t group = GroupOf(args);
  const int64_t dim = args.layout.value_dim;
  for (int64_t token = 0; token < tile.tokens; ++token) {
    float* const out =
        args.out.row(tile.run->step_row + tile.token_begin + token) + tile.kv_head * group * dim;
    for (int64_t i = 0; i < group; ++i) {
      const int64_t row = token * group + i;
      kernels.divide(total.accumulator + row * dim, total.sum[row], dim, out + i * dim);
    }
  }
}

// All that a tile sees; after() is called once, as AttendPartition does.
template <typename Tile, typename Scratch, typename After>
void AttendTile(const TileKernels& kernels, const AttendArgs& args, const Tile& tile,
                const After& after, Scratch& scratch) {
  const int64_t rows = tile.tokens * GroupOf(args);
  scratch.Resize(rows, args.layout);
  LoadQueries(kernels, args, tile, scratch);
  const SoftmaxTotals totals = SoftmaxTotals::At(scratch.totals.data(), rows, args.layout);
  const SoftmaxState partial =
      SoftmaxState::At(scratch.partial.data(), rows, args.layout.value_dim);
  scratch.partitions.clear();
  ForEachPartition(args, tile,
                   [&](const Partition& partition) { scratch.partitions.push_back(partition); });
  KVASIR_CHECK(!scratch.partitions.empty());  // every query sees a row
  for (size_t i = 0; i < scratch.partitions.size(); ++i) {
    const Partition& partition = scratch.partitions[i];
    const auto then = [&] {
      return i + 1 < scratch.partitions.size() ? FirstPlanes(tile, scratch.partitions[i + 1])
                                               : after();
    };
    AttendPartition(kernels, args, tile, partition, then, scratch, partial);
    totals.Add(kernels.table, partition.layout, partial);
  }
  StoreOutput(kernels.table, args, tile, totals.Finish(kernels.table));
}

// The planes that AttendTile begins with.
template <typename Tile>
HeadPlanes FirstPlanes(const AttendArgs& args, const Tile& tile) {
  HeadPlanes first;
  ForEachPartition(args, tile, [&](const Partition& partition) {
    if (first.values == nullptr) first = FirstPlanes(tile, partition);
  });
  return first;
}

}  // namespace

CpuAttention::CpuAttention(const TileKernels& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), scratch_(static_cast<size_t>(pool.threads())) {}

CpuAttention::~CpuAttention() = default;

size_t CpuAttention::scratch_bytes() const {
  size_t bytes = partials_.capacity() * sizeof(float);
  for (const Scratch& scratch : scratch_) bytes += scratch.bytes();
  return bytes;
}

std::vector<CpuAttention::Tile> CpuAttention::MakeTiles(const AttendArgs& args) const {
  const int64_t tokens_per_tile = std::max<int64_t>(1, kTileRows / GroupOf(args));
  std::vector<Tile> tiles;
  for (const KvRun& run : args.runs) {
    for (int64_t token = 0; token < run.rows; token += tokens_per_tile) {
      for (int head = 0; head < args.layout.kv_heads; ++head) {
        tiles.push_back({&run, token, std::min(tokens_per_tile, run.rows - token), head});
      }
    }
  }
  return tiles;
}

// Fewer tiles than threads: partitions become the unit of work, merged afterwards in order.
void CpuAttention::AttendSplit(const AttendArgs& args, const std::vector<Tile>& tiles) {
  struct Unit {
    const Tile* tile;
    Partition partition;
    size_t state_offset;
  };
  std::vector<Unit> units;
  size_t floats = 0;
  const int64_t group = GroupOf(args);
  for (const Tile& tile : tiles) {
    ForEachPartition(args, tile, [&](const Partition& partition) {
      units.push_back({&tile, partition, floats});
      floats += SoftmaxState::Floats(tile.tokens * group, args.layout.value_dim);
    });
  }
  partials_.resize(floats);
  std::atomic<size_t> next{0};
  pool_.Run([&](int thread) {
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    for (size_t i = next.fetch_add(1); i < units.size(); i = next.fetch_add(1)) {
      const Unit& unit = units[i];
      const int64_t rows = unit.tile->tokens * group;
      scratch.Resize(rows, args.layout);
      LoadQueries(kernels_, args, *unit.tile, scratch);
      AttendPartition(
          kernels_, args, *unit.tile, unit.partition, [] { return HeadPlanes(); }, scratch,
          SoftmaxState::At(partials_.data() + unit.state_offset, rows, args.layout.value_dim));
    }
  });
  Scratch& scratch = scratch_[0];
  for (size_t i = 0; i < units.size();) {
    const Tile& tile = *units[i].tile;
    const int64_t rows = tile.tokens * group;
    scratch.Resize(rows, args.layout);
    const SoftmaxTotals totals = SoftmaxTotals::At(scratch.totals.data(), rows, args.layout);
    for (; i < units.size() && units[i].tile == &tile; ++i) {
      totals.Add(
          kernels_.table, units[i].partition.layout,
          SoftmaxState::At(partials_.data() + units[i].state_offset, rows, args.layout.value_dim));
    }
    StoreOutput(kernels_.table, args, tile, totals.Finish(kernels_.table));
  }
}

void CpuAttention::Attend(const AttendArgs& args) {
  KVASIR_CHECK(args.layout.kv_heads > 0 && args.query_heads % args.layout.kv_heads == 0);
  const std::vector<Tile> tiles = MakeTiles(args);
  if (static_cast<int>(tiles.size()) < pool_.threads()) {
    AttendSplit(args, tiles);
    return;
  }
  std::atomic<size_t> next{0};
  pool_.Run([&](int thread) {
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    // A thread takes its next tile when it begins the last block of one, to fetch what it needs.
    size_t following = 0;
    const auto take = [&] {
      following = next.fetch_add(1);
      return following < tiles.size() ? FirstPlanes(args, tiles[following]) : HeadPlanes();
    };
    take();
    while (following < tiles.size()) AttendTile(kernels_, args, tiles[following], take, scratch);
  });
}

}  // namespace kvasir
