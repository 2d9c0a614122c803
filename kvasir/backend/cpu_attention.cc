#include "kvasir/backend/cpu_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <span>

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

// A tile's queries as integers, if it has some.
struct IntegerQueryRows {
  std::vector<std::byte> codes;
  std::vector<float> steps;  // scales before sums
  std::vector<int32_t> starts;
  int64_t dim = 0;
  int64_t groups = 0;

  void Resize(int64_t rows, const KvCodec& codec, int64_t key_dim) {
    dim = key_dim;
    groups = IntegerGroups(codec, dim);
    codes.resize(static_cast<size_t>(rows * IntegerQueries::CodeBytes(dim)));
    starts.resize(static_cast<size_t>(rows * groups));
    steps.resize(2 * starts.size());
  }
  IntegerQueries view() {
    return {codes.data(), steps.data(), steps.data() + steps.size() / 2, starts.data()};
  }
  // The rows of `from` with these indices.
  void Gather(IntegerQueryRows& from, std::span<const int32_t> rows, const KvCodec& codec) {
    Resize(static_cast<int64_t>(rows.size()), codec, from.dim);
    const IntegerQueries source = from.view();
    IntegerQueries to = view();
    const int64_t bytes = IntegerQueries::CodeBytes(dim);
    for (const int32_t row : rows) {
      to.codes = std::copy_n(source.codes + row * bytes, bytes, to.codes);
      to.scales = std::copy_n(source.scales + row * groups, groups, to.scales);
      to.sums = std::copy_n(source.sums + row * groups, groups, to.sums);
      to.starts = std::copy_n(source.starts + row * groups, groups, to.starts);
    }
  }
  size_t bytes() const {
    return codes.capacity() + (steps.capacity() + starts.capacity()) * sizeof(float);
  }
};

// Some rows of a tile side by side: what the softmax reads and writes of each.
struct SomeRows {
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  AlignedVector<float> max;
  AlignedVector<float> sum;
  AlignedVector<float> largest;

  void Resize(int64_t rows) {
    const auto count = static_cast<size_t>(rows);
    for (auto* each : {&begin, &end}) each->resize(count);
    for (auto* each : {&max, &sum, &largest}) each->resize(count);
  }
  // The rows of `whole` with these indices; returns it with them in place of all.
  WeighTileArgs Gather(const WeighTileArgs& whole, std::span<const int32_t> rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t row = rows[i];
      begin[i] = whole.begin[row];
      end[i] = whole.end[row];
      max[i] = whole.max[row];
      sum[i] = whole.sum[row];
      largest[i] = whole.largest[row];
    }
    WeighTileArgs args = whole;
    args.rows = static_cast<int64_t>(rows.size());
    args.begin = begin.data();
    args.end = end.data();
    args.max = max.data();
    args.sum = sum.data();
    args.largest = largest.data();
    args.index = rows.data();
    return args;
  }
  // Back to `whole`, what kernels change.
  void Scatter(std::span<const int32_t> rows, const WeighTileArgs& whole) const {
    for (size_t i = 0; i < rows.size(); ++i) {
      whole.max[rows[i]] = max[i];
      whole.sum[rows[i]] = sum[i];
      whole.largest[rows[i]] = largest[i];
    }
  }
  size_t bytes() const {
    return (begin.capacity() + end.capacity() + max.capacity() + sum.capacity() +
            largest.capacity()) *
           sizeof(float);
  }
};

// Where one byte is enough for some rows and two are for others.
struct Adaptive {
  IntegerQueryRows integers;       // the queries with one byte
  std::vector<int32_t> decisive;   // [rows]: those that take two
  std::vector<int32_t> others;     // [rows]
  IntegerQueryRows some_integers;  // with two bytes, side by side
  SomeRows some;

  void Resize(int64_t rows) {
    decisive.resize(static_cast<size_t>(rows));
    others.resize(static_cast<size_t>(rows));
    some.Resize(rows);
  }
  size_t bytes() const {
    return integers.bytes() + some_integers.bytes() + some.bytes() +
           (decisive.capacity() + others.capacity()) * sizeof(int32_t);
  }
};

struct CpuAttention::Scratch {
  std::vector<float> queries;      // [rows, key_dim]
  std::vector<float> rotated;      // [rows, key_dim]: the queries rotated, if some keys are
  std::vector<std::byte> rounded;  // the queries as round_rows has them, if some keys are in pairs
  // The queries as integers, if keys are multiplied as such; on their own for dense blocks of a
  // packed cache, whose codes and whose unit differ.
  IntegerQueryRows integers;
  IntegerQueryRows dense_integers;
  AlignedVector<float> scores;   // [rows, 64]
  AlignedVector<float> largest;  // [rows]: of the scores, where weights are integers
  std::vector<float> rescale;    // [rows]
  Adaptive adaptive;
  // The weights as integers, if values are multiplied as such: codes, and steps before shifts
  // before tops before rounders.
  AlignedVector<std::byte> weight_codes;
  std::vector<float> weight_steps;
  std::vector<int32_t> weight_starts;
  AlignedVector<float> totals;   // SoftmaxTotals
  AlignedVector<float> partial;  // SoftmaxState
  AlignedVector<float> derived;  // [key_dim, 64]: the keys of a block, if they are from-value
  std::vector<Partition> partitions;
  std::vector<RowRange> ranges;  // [tokens]: what each sees of the segment at hand
  std::vector<int32_t> begin;    // [rows]: the same of the block at hand
  std::vector<int32_t> end;      // [rows]

  void Resize(int64_t rows, const KvLayout& layout) {
    const size_t count = static_cast<size_t>(rows);
    queries.resize(count * static_cast<size_t>(layout.key_dim));
    if (layout.key_codec.rotates()) rotated.resize(queries.size());
    if (layout.key_codec.kind == KvCodec::Kind::kBf16 ||
        layout.dense_codec.kind == KvCodec::Kind::kBf16) {
      rounded.resize(count * static_cast<size_t>(KernelTable::RoundedBytes(layout.key_dim)));
    }
    scores.resize(count * kBlockTokens);
    rescale.resize(count);
    weight_starts.resize(count *
                         static_cast<size_t>(IntegerGroups(layout.value_codec, layout.value_dim)));
    weight_steps.resize(2 * weight_starts.size() + count + kBlockTokens);
    weight_codes.resize(weight_starts.size() * IntegerWeights::kCodeBytes);
    totals.resize(SoftmaxTotals::Floats(rows, layout));
    partial.resize(SoftmaxState::Floats(rows, layout.value_dim));
    if (layout.key_codec.kind == KvCodec::Kind::kFromValue) {
      derived.resize(static_cast<size_t>(layout.key_dim) * kBlockTokens);
    }
    begin.resize(count);
    end.resize(count);
    largest.resize(count);
  }
  IntegerWeights weights() {
    float* const shifts = weight_steps.data() + weight_starts.size();
    float* const tops = shifts + weight_starts.size();
    return {weight_codes.data(),  weight_steps.data(), shifts, weight_starts.data(), tops,
            tops + rescale.size()};
  }
  size_t bytes() const {
    return integers.bytes() + dense_integers.bytes() + adaptive.bytes() + rounded.capacity() +
           weight_codes.capacity() +
           (queries.capacity() + rotated.capacity() + scores.capacity() + rescale.capacity() +
            weight_steps.capacity() + weight_starts.capacity() + totals.capacity() +
            partial.capacity() + derived.capacity() + largest.capacity() + begin.capacity() +
            end.capacity()) *
               sizeof(float) +
           partitions.capacity() * sizeof(Partition) + ranges.capacity() * sizeof(RowRange);
  }
};

namespace {

int64_t GroupOf(const AttendArgs& args) { return args.query_heads / args.layout.kv_heads; }

const VisibleRows& VisibleOf(const AttendArgs& args, const KvRun& run, int64_t token) {
  return args.visible[static_cast<size_t>(run.step_row + token)];
}

// The tile's queries as the keys of such blocks need them, if they are multiplied as integers.
template <typename Scratch>
void QuantizeQueries(const TileKernels& kernels, const KvBlockLayout& layout, int64_t rows,
                     const Scratch& scratch, IntegerQueryRows& integers) {
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

// One head's part of a block: null where there is none.
struct HeadPlanes {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int64_t key_bytes = 0;
  int64_t value_bytes = 0;

  template <typename Tile>
  static HeadPlanes Of(const KvBlockLayout& layout, const Tile& tile, const std::byte* block) {
    return {layout.StoresKeys() ? block + tile.kv_head * layout.KeyHeadBytes() : nullptr,
            block + layout.KeyPlaneBytes() + tile.kv_head * layout.ValueHeadBytes(),
            static_cast<int64_t>(layout.KeyHeadBytes()),
            static_cast<int64_t>(layout.ValueHeadBytes())};
  }
};

template <typename Tile>
const KvBlocksView& BlocksOf(const Tile& tile, Segment segment) {
  return IsRecent(segment) ? tile.run->recent : tile.run->kv;
}

// What a partition begins with.
template <typename Tile>
HeadPlanes FirstPlanes(const Tile& tile, const Partition& partition) {
  return HeadPlanes::Of(
      partition.layout, tile,
      BlocksOf(tile, partition.segment).block(partition.rows.begin / kBlockTokens));
}

// What is fetched while a block is read: as far ahead as the cache that it goes into has room for.
struct Upcoming {
  struct Part {
    const std::byte* from = nullptr;
    int64_t bytes = 0;
  };

  Upcoming() = default;
  Upcoming(CacheLevel into, const HeadPlanes& now, const HeadPlanes& next,
           bool has_integer_weights) {
    // The first level holds little more than two planes: the plane at hand and the one behind it.
    const bool is_near = into == CacheLevel::kFirst && now.keys != nullptr;
    if (is_near) {
      scores = {now.values, now.value_bytes};
      sums = {next.keys, next.key_bytes};
    } else {
      scores = {next.keys, next.key_bytes};
      sums = {next.values, next.value_bytes};
    }
    // Where weights are made as integers that takes as long as summing values.
    if (!has_integer_weights || sums.from == nullptr) return;
    weights = {sums.from, sums.bytes / 128 * 64};
    sums = {sums.from + weights.bytes, sums.bytes - weights.bytes};
  }

  Part scores;
  Part weights;
  Part sums;
};

// A tile at a block.
template <typename Scratch>
struct BlockArgs {
  const AttendArgs& args;
  const KvBlockLayout& layout;
  HeadPlanes planes;  // with keys, which may be derived ones
  Upcoming upcoming;
  int64_t rows;
  Scratch& scratch;
  const SoftmaxState& state;
};

template <typename Scratch>
ScoreTileArgs ScoreArgs(const TileKernels& kernels, const BlockArgs<Scratch>& block,
                        const IntegerQueries& integers) {
  const KvBlockLayout& layout = block.layout;
  Scratch& scratch = block.scratch;
  return {.queries = (layout.key_codec.rotates() ? scratch.rotated : scratch.queries).data(),
          .query_stride = layout.key_dim,
          .rows = block.rows,
          .keys = block.planes.keys,
          .key_dim = layout.key_dim,
          .scores = scratch.scores.data(),
          .next = block.upcoming.scores.from,
          .codec = layout.StoresKeys() ? layout.key_codec : KvCodec{KvCodec::Kind::kF32},
          .next_bytes = block.upcoming.scores.bytes,
          .fetch_into = kernels.fetch_into,
          .integers = integers,
          .rounded = scratch.rounded.data()};
}

// For weights that are integers, whose state.max is an exponent of 2.
template <typename Scratch>
WeighTileArgs WeighArgs(const TileKernels& kernels, const BlockArgs<Scratch>& block) {
  const bool base2 = kernels.InBase2(block.layout);
  const float softcap = block.args.softcap;
  Scratch& scratch = block.scratch;
  return {.scores = scratch.scores.data(),
          .rows = block.rows,
          .begin = scratch.begin.data(),
          .end = scratch.end.data(),
          .softcap = base2 ? softcap * math::kLog2E : softcap,
          .to_base2 = base2 ? 1.0f : math::kLog2E,
          .max = block.state.max,
          .sum = block.state.sum,
          .rescale = scratch.rescale.data(),
          .largest = scratch.largest.data(),
          .values = block.planes.values,
          .value_dim = block.layout.value_dim,
          .codec = block.layout.value_codec,
          .fetch = block.upcoming.weights.from,
          .fetch_bytes = block.upcoming.weights.bytes,
          .fetch_into = kernels.fetch_into,
          .out = scratch.weights()};
}

template <typename Scratch>
AccumulateTileArgs AccumulateArgs(const TileKernels& kernels, const BlockArgs<Scratch>& block) {
  Scratch& scratch = block.scratch;
  return {.weights = scratch.scores.data(),
          .rows = block.rows,
          .begin = scratch.begin.data(),
          .end = scratch.end.data(),
          .rescale = scratch.rescale.data(),
          .values = block.planes.values,
          .value_dim = block.layout.value_dim,
          .accumulator = block.state.accumulator,
          .accumulator_stride = block.layout.value_dim,
          .next = block.upcoming.sums.from,
          .codec = block.layout.value_codec,
          .next_bytes = block.upcoming.sums.bytes,
          .fetch_into = kernels.fetch_into,
          .integers = scratch.weights()};
}

// Weights that are integers, of prepared scores, and the values.
template <typename Scratch>
void SumValues(const TileKernels& kernels, const BlockArgs<Scratch>& block) {
  kernels.IntegerValues(block.layout)->weigh_tile(WeighArgs(kernels, block));
  kernels.Accumulate(AccumulateArgs(kernels, block));
}

// The same for the rows with these indices.
template <typename Scratch>
void SumValuesOf(std::span<const int32_t> rows, const TileKernels& kernels,
                 const BlockArgs<Scratch>& block) {
  if (static_cast<int64_t>(rows.size()) == block.rows) return SumValues(kernels, block);
  SomeRows& some = block.scratch.adaptive.some;
  const WeighTileArgs whole = WeighArgs(kernels, block);
  const WeighTileArgs args = some.Gather(whole, rows);
  kernels.IntegerValues(block.layout)->weigh_tile(args);
  AccumulateTileArgs accumulate = AccumulateArgs(kernels, block);
  accumulate.rows = args.rows;
  accumulate.begin = args.begin;
  accumulate.end = args.end;
  accumulate.index = args.index;
  kernels.Accumulate(accumulate);
  some.Scatter(rows, whole);
}

template <typename Scratch>
void AttendBlock(const TileKernels& kernels, const BlockArgs<Scratch>& block,
                 const IntegerQueries& integers) {
  kernels.Score(ScoreArgs(kernels, block, integers));
  if (kernels.IntegerValues(block.layout) != nullptr) {
    kernels.table.prepare_scores(WeighArgs(kernels, block));
    return SumValues(kernels, block);
  }
  Scratch& scratch = block.scratch;
  kernels.table.softmax_tile({.scores = scratch.scores.data(),
                              .rows = block.rows,
                              .begin = scratch.begin.data(),
                              .end = scratch.end.data(),
                              .softcap = block.args.softcap,
                              .max = block.state.max,
                              .sum = block.state.sum,
                              .rescale = scratch.rescale.data()});
  kernels.Accumulate(AccumulateArgs(kernels, block));
}

// Prepared scores once more, of the rows with these indices.
template <typename Scratch>
void ScoreAgain(std::span<const int32_t> rows, const TileKernels& kernels,
                const BlockArgs<Scratch>& block) {
  const WeighTileArgs whole = WeighArgs(kernels, block);
  ScoreTileArgs score = ScoreArgs(kernels, block, block.scratch.integers.view());
  score.next = nullptr;
  if (static_cast<int64_t>(rows.size()) == block.rows) {
    kernels.Score(score);
    kernels.table.prepare_scores(whole);
    return;
  }
  Adaptive& adaptive = block.scratch.adaptive;
  adaptive.some_integers.Gather(block.scratch.integers, rows, block.layout.key_codec);
  score.integers = adaptive.some_integers.view();
  score.rows = static_cast<int64_t>(rows.size());
  score.index = rows.data();
  kernels.Score(score);
  kernels.table.prepare_scores(adaptive.some.Gather(whole, rows));
  adaptive.some.Scatter(rows, whole);
}

// A block with one byte, and with two for the rows for which that proves it to be decisive.
template <typename Scratch>
void AttendAdaptively(const TileKernels& kernels, BlockArgs<Scratch> block) {
  Adaptive& adaptive = block.scratch.adaptive;
  const TileKernels one_byte = kernels.WithOneByte();
  one_byte.Score(ScoreArgs(one_byte, block, adaptive.integers.view()));
  const WeighTileArgs whole = WeighArgs(one_byte, block);
  kernels.table.prepare_scores(whole);
  DecisiveRows found = {.decisive = adaptive.decisive.data(), .others = adaptive.others.data()};
  kernels.table.find_decisive(whole, found);
  if (found.decisive_count == 0) return SumValues(one_byte, block);
  const std::span decisive(found.decisive, static_cast<size_t>(found.decisive_count));
  const std::span others(found.others, static_cast<size_t>(found.others_count));
  if (kernels.IntegerKeys(block.layout) != one_byte.IntegerKeys(block.layout)) {
    ScoreAgain(decisive, kernels, block);
  }
  if (kernels.IntegerValues(block.layout) == one_byte.IntegerValues(block.layout)) {
    return SumValues(kernels, block);
  }
  if (!others.empty()) {
    SumValuesOf(others, one_byte, block);
    block.upcoming = {};
  }
  SumValuesOf(decisive, kernels, block);
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
    HeadPlanes planes = HeadPlanes::Of(layout, tile, kv.block(block));
    const bool is_last = (block + 1) * kBlockTokens >= partition.rows.end;
    const Upcoming upcoming(kernels.fetch_into, planes,
                            is_last ? after() : HeadPlanes::Of(layout, tile, kv.block(block + 1)),
                            kernels.IntegerValues(layout) != nullptr);
    if (planes.keys == nullptr) {
      planes.keys = DerivedKeys(kernels.table.isa, args, tile, layout, block, planes.values,
                                partition.rows, scratch);
    }
    const BlockArgs<Scratch> step = {args, layout, planes, upcoming, rows, scratch, state};
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
