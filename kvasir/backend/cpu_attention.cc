#include "kvasir/backend/cpu_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/kernels/scalar_math.h"

namespace kvasir {
namespace {

// Query rows of one tile: enough to reuse a block's keys from registers many times, few enough
// that scores and accumulators (64 x 64 and 64 x 128 floats) stay in the second-level cache.
constexpr int64_t kTileRows = 64;

// Below this many numbers an operation is done before another thread would have woken up.
constexpr int64_t kForkThreshold = 1 << 15;

// A contiguous part of what a query may see: the kept head rows, or the main range.
enum class Segment { kHead, kMain };

struct RowRange {
  int64_t begin;
  int64_t end;
};

RowRange RangeOf(const VisibleRows& visible, Segment segment) {
  if (segment == Segment::kHead) return {0, visible.head_end};
  return {visible.begin, visible.end};
}

// Running softmax of `rows` queries: [rows] max, [rows] sum, [rows, value_dim] accumulator.
struct State {
  float* max;
  float* sum;
  float* accumulator;

  static size_t Floats(int64_t rows, int64_t value_dim) {
    return static_cast<size_t>(rows * (2 + value_dim));
  }
  static State At(float* memory, int64_t rows) {
    return {memory, memory + rows, memory + 2 * rows};
  }
  void Reset(int64_t rows, int64_t value_dim) const {
    std::fill_n(max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, rows, 0.0f);
    std::fill_n(accumulator, rows * value_dim, 0.0f);
  }
};

// total = total + partial, as if the partial's rows had come after the total's. The order of
// merges is the order of partitions, so it is a function of the sequence alone.
void Merge(const State& total, const State& partial, int64_t rows, int64_t value_dim) {
  for (int64_t r = 0; r < rows; ++r) {
    if (partial.sum[r] == 0) continue;  // nothing visible in that partition
    const float max = std::max(total.max[r], partial.max[r]);
    const float keep = total.sum[r] == 0 ? 0.0f : scalar::Exp(total.max[r] - max);
    const float take = scalar::Exp(partial.max[r] - max);
    total.max[r] = max;
    total.sum[r] = total.sum[r] * keep + partial.sum[r] * take;
    float* const out = total.accumulator + r * value_dim;
    const float* const in = partial.accumulator + r * value_dim;
    for (int64_t d = 0; d < value_dim; ++d) out[d] = out[d] * keep + in[d] * take;
  }
}

}  // namespace

// Queries of some tokens of one run that share a KV head: row i of the tile is token
// token_begin + i / group, query head kv_head * group + i % group.
struct CpuAttention::Tile {
  const KvRun* run;
  int64_t token_begin;
  int64_t tokens;
  int kv_head;
};

struct CpuAttention::Scratch {
  std::vector<float> queries;  // [rows, key_dim]
  std::vector<float> scores;   // [rows, 64]
  std::vector<float> rescale;  // [rows]
  std::vector<float> total;    // State
  std::vector<float> partial;  // State
  std::vector<int32_t> begin;  // [rows]
  std::vector<int32_t> end;    // [rows]

  void Resize(int64_t rows, const KvLayout& layout) {
    const size_t count = static_cast<size_t>(rows);
    queries.resize(count * static_cast<size_t>(layout.key_dim));
    scores.resize(count * kBlockTokens);
    rescale.resize(count);
    total.resize(State::Floats(rows, layout.value_dim));
    partial.resize(State::Floats(rows, layout.value_dim));
    begin.resize(count);
    end.resize(count);
  }
  size_t bytes() const {
    return (queries.capacity() + scores.capacity() + rescale.capacity() + total.capacity() +
            partial.capacity() + begin.capacity() + end.capacity()) *
           sizeof(float);
  }
};

namespace {

int64_t GroupOf(const AttendArgs& args) { return args.query_heads / args.layout.kv_heads; }

const VisibleRows& VisibleOf(const AttendArgs& args, const KvRun& run, int64_t token) {
  return args.visible[static_cast<size_t>(run.step_row + token)];
}

// Copies the tile's queries side by side and scales them.
template <typename Tile>
void LoadQueries(const AttendArgs& args, const Tile& tile, float* queries) {
  const int64_t group = GroupOf(args);
  const int64_t dim = args.layout.key_dim;
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const float* row = args.queries.row(tile.run->step_row + tile.token_begin + token) +
                       tile.kv_head * group * dim;
    float* out = queries + token * group * dim;
    for (int64_t i = 0; i < group * dim; ++i) out[i] = row[i] * args.scale;
  }
}

// The rows that at least one query of the tile sees in `segment`.
template <typename Tile>
RowRange UnionRange(const AttendArgs& args, const Tile& tile, Segment segment) {
  RowRange all = {std::numeric_limits<int64_t>::max(), 0};
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const RowRange one = RangeOf(VisibleOf(args, *tile.run, tile.token_begin + token), segment);
    if (one.begin >= one.end) continue;
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  return all.begin < all.end ? all : RowRange{0, 0};
}

// One partition of one segment, from an empty state.
template <typename Tile, typename Scratch>
void AttendPartition(const KernelTable& kernels, const AttendArgs& args, const Tile& tile,
                     Segment segment, RowRange rows_of_partition, Scratch& scratch,
                     const State& state) {
  const KvBlockLayout layout = args.layout.BlockAt(0);
  const int64_t group = GroupOf(args);
  const int64_t rows = tile.tokens * group;
  state.Reset(rows, layout.value_dim);
  for (int64_t block = rows_of_partition.begin / kBlockTokens;
       block * kBlockTokens < rows_of_partition.end; ++block) {
    const int64_t first = block * kBlockTokens;
    for (int64_t token = 0; token < tile.tokens; ++token) {
      const RowRange range = RangeOf(VisibleOf(args, *tile.run, tile.token_begin + token), segment);
      const int64_t begin = std::clamp<int64_t>(range.begin - first, 0, kBlockTokens);
      const int64_t end = std::clamp<int64_t>(range.end - first, begin, kBlockTokens);
      std::fill_n(&scratch.begin[token * group], group, static_cast<int32_t>(begin));
      std::fill_n(&scratch.end[token * group], group, static_cast<int32_t>(end));
    }
    const KvBlocksView& kv = tile.run->kv;
    const std::byte* const data = kv.blocks[static_cast<size_t>(block - kv.first_block)];
    const std::byte* const values =
        data + layout.KeyPlaneBytes() + tile.kv_head * layout.ValueHeadBytes();
    const std::byte* next_keys = nullptr;
    if ((block + 1) * kBlockTokens < rows_of_partition.end) {
      next_keys = kv.blocks[static_cast<size_t>(block + 1 - kv.first_block)] +
                  tile.kv_head * layout.KeyHeadBytes();
    }
    kernels.ForCodec(layout.key_codec).score_tile({.queries = scratch.queries.data(),
                                  .query_stride = layout.key_dim,
                                  .rows = rows,
                                  .keys = data + tile.kv_head * layout.KeyHeadBytes(),
                                  .key_dim = layout.key_dim,
                                  .scores = scratch.scores.data(),
                                  .next = values});
    kernels.softmax_tile({.scores = scratch.scores.data(),
                          .rows = rows,
                          .begin = scratch.begin.data(),
                          .end = scratch.end.data(),
                          .softcap = args.softcap,
                          .max = state.max,
                          .sum = state.sum,
                          .rescale = scratch.rescale.data()});
    kernels.ForCodec(layout.value_codec).accumulate_tile({.weights = scratch.scores.data(),
                                         .rows = rows,
                                         .begin = scratch.begin.data(),
                                         .end = scratch.end.data(),
                                         .rescale = scratch.rescale.data(),
                                         .values = values,
                                         .value_dim = layout.value_dim,
                                         .accumulator = state.accumulator,
                                         .accumulator_stride = layout.value_dim,
                                         .next = next_keys});
  }
}

// Calls body(segment, rows) for every partition that the tile sees, in merge order.
template <typename Tile, typename Body>
void ForEachPartition(const AttendArgs& args, const Tile& tile, const Body& body) {
  for (const Segment segment : {Segment::kHead, Segment::kMain}) {
    const RowRange all = UnionRange(args, tile, segment);
    for (int64_t begin = all.begin; begin < all.end;) {
      const int64_t end = std::min(all.end, (begin / kPartitionRows + 1) * kPartitionRows);
      body(segment, RowRange{begin, end});
      begin = end;
    }
  }
}

template <typename Tile>
void StoreOutput(const AttendArgs& args, const Tile& tile, const State& total) {
  const int64_t group = GroupOf(args);
  const int64_t dim = args.layout.value_dim;
  for (int64_t i = 0; i < tile.tokens * group; ++i) {
    float* out = args.out.row(tile.run->step_row + tile.token_begin + i / group) +
                 (tile.kv_head * group + i % group) * dim;
    const float* accumulator = total.accumulator + i * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = accumulator[d] / total.sum[i];
  }
}

}  // namespace

CpuAttention::CpuAttention(const KernelTable& kernels, ThreadPool& pool)
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

void CpuAttention::AttendTile(const AttendArgs& args, const Tile& tile, Scratch& scratch) const {
  const int64_t rows = tile.tokens * GroupOf(args);
  const int64_t value_dim = args.layout.value_dim;
  scratch.Resize(rows, args.layout);
  LoadQueries(args, tile, scratch.queries.data());
  const State total = State::At(scratch.total.data(), rows);
  const State partial = State::At(scratch.partial.data(), rows);
  total.Reset(rows, value_dim);
  ForEachPartition(args, tile, [&](Segment segment, RowRange range) {
    AttendPartition(kernels_, args, tile, segment, range, scratch, partial);
    Merge(total, partial, rows, value_dim);
  });
  StoreOutput(args, tile, total);
}

// Fewer tiles than threads: partitions become the unit of work, merged afterwards in order.
void CpuAttention::AttendSplit(const AttendArgs& args, const std::vector<Tile>& tiles) {
  struct Unit {
    const Tile* tile;
    Segment segment;
    RowRange range;
    size_t state_offset;
  };
  std::vector<Unit> units;
  size_t floats = 0;
  const int64_t group = GroupOf(args);
  for (const Tile& tile : tiles) {
    ForEachPartition(args, tile, [&](Segment segment, RowRange range) {
      units.push_back({&tile, segment, range, floats});
      floats += State::Floats(tile.tokens * group, args.layout.value_dim);
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
      LoadQueries(args, *unit.tile, scratch.queries.data());
      AttendPartition(kernels_, args, *unit.tile, unit.segment, unit.range, scratch,
                      State::At(partials_.data() + unit.state_offset, rows));
    }
  });
  Scratch& scratch = scratch_[0];
  for (size_t i = 0; i < units.size();) {
    const Tile& tile = *units[i].tile;
    const int64_t rows = tile.tokens * group;
    scratch.Resize(rows, args.layout);
    const State total = State::At(scratch.total.data(), rows);
    total.Reset(rows, args.layout.value_dim);
    for (; i < units.size() && units[i].tile == &tile; ++i) {
      Merge(total, State::At(partials_.data() + units[i].state_offset, rows), rows,
            args.layout.value_dim);
    }
    StoreOutput(args, tile, total);
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
    for (size_t i = next.fetch_add(1); i < tiles.size(); i = next.fetch_add(1)) {
      AttendTile(args, tiles[i], scratch);
    }
  });
}

void CpuAttention::RecordQueries(const KvLayout& layout, std::span<const KvRun> runs,
                                 ConstFloatRows queries) {
  const int64_t begin = layout.observed_block * kBlockTokens;
  const size_t offset = layout.BlockAt(layout.observed_block).QueriesOffset();
  for (const KvRun& run : runs) {
    const int64_t end = std::min(run.first_row + run.rows, begin + kBlockTokens);
    for (int64_t row = std::max(run.first_row, begin); row < end; ++row) {
      auto* const recorded = reinterpret_cast<float*>(run.kv.block_of(row) + offset);
      std::copy_n(queries.row(run.step_row + row - run.first_row), layout.query_floats,
                  recorded + (row - begin) * layout.query_floats);
    }
  }
}

void CpuAttention::EncodeKv(const KvLayout& cache_layout, std::span<const KvRun> runs,
                            ConstFloatRows keys, ConstFloatRows values) {
  const KvBlockLayout layout = cache_layout.BlockAt(0);
  const auto encode_heads = [&](const KvRun& run, int64_t head_begin, int64_t head_end) {
    for (int64_t row = 0; row < run.rows;) {
      const int64_t cache_row = run.first_row + row;
      const int64_t slot = cache_row % kBlockTokens;
      const int64_t count = std::min<int64_t>(run.rows - row, kBlockTokens - slot);
      std::byte* const block =
          run.kv.blocks[static_cast<size_t>(cache_row / kBlockTokens - run.kv.first_block)];
      for (int64_t head = head_begin; head < head_end; ++head) {
        kernels_.ForCodec(layout.key_codec).encode_keys(
            {.rows = keys.row(run.step_row + row) + head * layout.key_dim,
             .row_stride = keys.stride,
             .count = count,
             .dim = layout.key_dim,
             .slot = slot,
             .plane = block + head * layout.KeyHeadBytes()});
        kernels_.ForCodec(layout.value_codec).encode_values(
            {.rows = values.row(run.step_row + row) + head * layout.value_dim,
             .row_stride = values.stride,
             .count = count,
             .dim = layout.value_dim,
             .slot = slot,
             .plane = block + layout.KeyPlaneBytes() + head * layout.ValueHeadBytes()});
      }
      row += count;
    }
  };
  for (const KvRun& run : runs) {
    const int64_t numbers = run.rows * layout.kv_heads * (layout.key_dim + layout.value_dim);
    if (numbers < kForkThreshold) {
      encode_heads(run, 0, layout.kv_heads);
    } else {
      pool_.For(static_cast<size_t>(layout.kv_heads), [&](size_t begin, size_t end) {
        encode_heads(run, static_cast<int64_t>(begin), static_cast<int64_t>(end));
      });
    }
  }
}

}  // namespace kvasir
