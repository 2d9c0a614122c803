#include "kvasir/backend/cpu_attention.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "kvasir/backend/cpu_kv_rows.h"
#include "kvasir/backend/partition_attention.h"
#include "kvasir/backend/softmax_state.h"
#include "kvasir/base/check.h"
#include "kvasir/base/scratch_vector.h"

namespace kvasir {
namespace {

// With so many query rows of a head at most, reading the cache takes longer than what is done with
// it.
constexpr int64_t kFewQueryRows = 16;

// Query rows of one tile. However many they are, a block is fetched, read for the first time and
// laid out in panels once, so larger tiles are faster while scores and accumulators stay in the
// second-level cache. They get smaller towards the end, a share of what each thread has left, so
// that threads finish together.
constexpr int64_t kLeastTileRows = 128;
constexpr int64_t kMostTileRows = 256;
constexpr int64_t kMostAccumulatorBytes = 128 << 10;
constexpr int64_t kTilesOfAThread = 8;

// Query rows of several heads that go through a partition together, at most: their accumulators
// stay in the first-level cache.
constexpr int64_t kRowsTogether = 64;

// Heads of a partition that a thread takes at least, so that what it reads lies side by side.
constexpr size_t kLeastHeads = 2;

// Whether a run has few query rows, for which the cache is read as it lies.
bool HasFewRows(const AttendArgs& args, const KvRun& run) {
  return run.rows * GroupOf(args) <= kFewQueryRows;
}

// The query rows of a head of the runs with few rows, or of the others.
int64_t RowsOf(const AttendArgs& args, bool few_rows) {
  int64_t rows = 0;
  for (const KvRun& run : args.runs) {
    if (HasFewRows(args, run) == few_rows) rows += run.rows * GroupOf(args);
  }
  return rows;
}

int64_t MostTileRows(int64_t value_dim) {
  const auto row_bytes = value_dim * static_cast<int64_t>(sizeof(float));
  return std::max(kLeastTileRows, std::min(kMostTileRows, kMostAccumulatorBytes / row_bytes));
}

// Rows of the next tile where a head has so many left.
int64_t TileRows(const AttendArgs& args, int64_t rows_left, int threads) {
  const int64_t of_all_heads = rows_left * args.layout.kv_heads;
  const auto share = static_cast<uint64_t>(of_all_heads / (kTilesOfAThread * threads));
  return std::clamp(static_cast<int64_t>(std::bit_floor(share)), kLeastTileRows,
                    MostTileRows(args.layout.value_dim));
}

// The tiles of runs with few rows, or of the others.
std::vector<QueryTile> MakeTiles(const AttendArgs& args, bool few_rows, int threads) {
  const int64_t group = GroupOf(args);
  int64_t rows_left = RowsOf(args, few_rows);
  std::vector<QueryTile> tiles;
  for (const KvRun& run : args.runs) {
    if (HasFewRows(args, run) != few_rows) continue;
    for (int64_t token = 0; token < run.rows;) {
      const int64_t room = std::max<int64_t>(1, TileRows(args, rows_left, threads) / group);
      const int64_t tokens = std::min(room, run.rows - token);
      for (int head = 0; head < args.layout.kv_heads; ++head) {
        tiles.push_back({&run, token, tokens, head});
      }
      token += tokens;
      rows_left -= tokens * group;
    }
  }
  return tiles;
}

void StoreOutput(const KernelTable& kernels, const AttendArgs& args, const QueryTile& tile,
                 const SoftmaxState& total) {
  const int64_t group = GroupOf(args);
  const int64_t dim = args.layout.value_dim;
  for (int64_t token = 0; token < tile.tokens; ++token) {
    float* const out = args.out.row(tile.step_row(token)) + tile.kv_head * group * dim;
    for (int64_t i = 0; i < group; ++i) {
      const int64_t row = token * group + i;
      if (args.sinks != nullptr) {
        AddSink(kernels, total, row, dim, args.sinks[tile.kv_head * group + i]);
      }
      kernels.divide(total.accumulator + row * dim, total.sum[row], dim, out + i * dim);
    }
  }
}

// The planes that a tile begins with.
HeadPlanes FirstPlanes(const AttendArgs& args, const QueryTile& tile) {
  HeadPlanes first;
  ForEachPartition(args, tile, [&](const Partition& partition) {
    if (first.values == nullptr) first = FirstPlanes(tile, partition);
  });
  return first;
}

}  // namespace

struct CpuAttention::Scratch : PartitionScratch {
  std::vector<TileQueries> queries;      // of a tile, or of those of heads that go together
  std::vector<const QueryTile*> loaded;  // what each of them is of
  std::vector<Partition> partitions;     // of a tile
  AlignedVector<float> partial;          // SoftmaxState of each head
  AlignedVector<float> totals;           // SoftmaxTotals

  // Of a tile, or of one for each of so many heads.
  void Resize(int64_t rows, const KvLayout& layout, size_t heads = 1) {
    PartitionScratch::Resize(rows, layout);
    ResizeScratch(heads * SoftmaxState::Floats(rows, layout.value_dim), &partial);
    ResizeScratch(SoftmaxTotals::Floats(rows, layout), &totals);
  }
  size_t bytes() const {
    size_t sum = PartitionScratch::bytes() + partitions.capacity() * sizeof(Partition) +
                 loaded.capacity() * sizeof(QueryTile*) +
                 (partial.capacity() + totals.capacity()) * sizeof(float);
    for (const TileQueries& each : queries) sum += each.bytes();
    return sum;
  }
};

// The partitions of every range of tokens, one range after the other, each for all heads. They are
// shared out as items: item i is head i % heads in the step that comes as number i / heads.
struct CpuAttention::Plan {
  struct Step {
    std::span<const QueryTile> tiles;  // [heads]
    Partition partition;
    size_t states;             // where theirs begin,
    size_t state_floats;       // and how far they are apart
    bool is_only_one = false;  // of its range: no others to merge it with
    bool writes = false;       // its run's new rows, before it reads any
  };
  size_t heads;
  std::vector<Step> steps;
  std::vector<size_t> first_steps;  // of every range, and behind the last
  std::vector<size_t> order;        // in which steps are shared out
  size_t floats = 0;                // of all states

  Plan(const AttendArgs& args, std::span<const QueryTile> tiles, int threads)
      : heads(static_cast<size_t>(args.layout.kv_heads)) {
    for (size_t i = 0; i < tiles.size(); i += heads) {
      const std::span of_range = tiles.subspan(i, heads);
      const size_t state_floats =
          SoftmaxState::Floats(of_range[0].rows(args), args.layout.value_dim);
      first_steps.push_back(steps.size());
      ForEachPartition(args, of_range[0], [&](const Partition& partition) {
        steps.push_back({of_range, partition, floats, state_floats});
        floats += heads * state_floats;
      });
      KVASIR_CHECK(steps.size() > first_steps.back());  // every query sees a row
      steps.back().is_only_one = steps.size() == first_steps.back() + 1;
    }
    first_steps.push_back(steps.size());
    ShareOut(static_cast<size_t>(threads));
  }
  // Has the new rows of every run written by the step that reads their blocks. Returns false, and
  // has none written, if that is not one step of each.
  bool WriteNewRows(const AttendArgs& args) {
    if (args.layout.dense_recent > 0 || args.layout.key_norms) return false;
    std::vector<Step*> writers;
    for (size_t range = 0; range < ranges(); ++range) {
      for (size_t i = first_steps[range]; i < first_steps[range + 1]; ++i) {
        const KvRun& run = *steps[i].tiles[0].run;
        const Partition& reads = steps[i].partition;
        const int64_t new_end = run.first_row + run.rows;
        if (reads.last_block() < run.first_row / kBlockTokens ||
            reads.first_block() > (new_end - 1) / kBlockTokens) {
          continue;
        }
        const bool has_all = reads.rows.begin <= run.first_row && new_end <= reads.rows.end;
        if (!has_all || writers.size() > range) return false;
        writers.push_back(&steps[i]);
      }
      if (writers.size() == range) return false;
    }
    for (Step* writer : writers) writer->writes = true;
    return true;
  }
  // A thread's share of the items is contiguous: each gets as many long partitions as the others,
  // and its shortest ones last.
  void ShareOut(size_t threads) {
    std::vector<size_t> longest_first(steps.size());
    std::iota(longest_first.begin(), longest_first.end(), size_t{0});
    std::ranges::stable_sort(longest_first, std::greater<>(), [&](size_t step) {
      const RowRange rows = steps[step].partition.rows;
      return rows.end - rows.begin;
    });
    order.reserve(steps.size());
    for (size_t thread = 0; thread < threads; ++thread) {
      for (size_t i = thread; i < steps.size(); i += threads) order.push_back(longest_first[i]);
    }
  }
  const Step& StepOf(size_t item) const { return steps[order[item / heads]]; }
  size_t items() const { return steps.size() * heads; }
  size_t ranges() const { return first_steps.size() - 1; }
  HeadPlanes FirstPlanesOf(size_t item) const {
    const Step& step = StepOf(item);
    return FirstPlanes(step.tiles[item % heads], step.partition);
  }
};

namespace {

// Of all heads' softmax states, from one range of tokens to the next, those of many ranges are more
// than are kept at a time: 16 MiB, or what one range needs. Returns the first tile that has to
// wait.
size_t EndOfPlan(const AttendArgs& args, const std::vector<QueryTile>& tiles, size_t begin) {
  constexpr size_t kMostFloats = size_t{4} << 20;
  const auto heads = static_cast<size_t>(args.layout.kv_heads);
  size_t floats = 0;
  size_t end = begin;
  while (end < tiles.size()) {
    size_t partitions = 0;
    ForEachPartition(args, tiles[end], [&](const Partition&) { ++partitions; });
    floats +=
        partitions * heads * SoftmaxState::Floats(tiles[end].rows(args), args.layout.value_dim);
    if (end > begin && floats > kMostFloats) break;
    end += heads;
  }
  return end;
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

size_t CpuAttention::ScratchBound(const StepShape& shape) const {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  // Each buffer is as large as some layer wants it.
  int64_t queries = 0;
  int64_t rows = 0;
  int64_t states = 0;
  int64_t block = 0;
  for (const auto& [kv_heads, dim] : shape.layers) {
    const int64_t group = shape.query_heads / kv_heads;
    const int64_t tile = std::max(group, std::min(MostTileRows(dim), shape.rows * group));
    const int64_t groups = dim / kQuantGroup + 1;
    // As floats, rotated and rounded; as integers of three kinds with a scale and two sums a group.
    const int64_t query_bytes =
        3 * dim * kFloat + 3 * (IntegerQueries::CodeBytes(dim) + 3 * groups * kFloat);
    // Those of a tile, or of heads together, and of few rows those of all heads.
    const int64_t of_all_heads = kv_heads * std::max(group, std::min(kRowsTogether / 2, tile));
    queries = std::max(queries, (tile + of_all_heads) * query_bytes);
    // Scores, weights, integers for those that take two bytes, and what a row has one of.
    const int64_t integers = IntegerQueries::CodeBytes(dim) + 3 * groups * kFloat;
    const int64_t weights = groups * (IntegerWeights::kCodeBytes + 3 * kFloat);
    rows = std::max(rows, tile * (kBlockTokens * kFloat + weights + integers + 16 * kFloat));
    // Of the heads that go together, and the sums of one, also rotated.
    states = std::max(states, (std::max(tile, kRowsTogether) + 2 * tile) * (dim + 18) * kFloat);
    // Planes as bytes with their scales, keys made of values, and what turns them.
    block = std::max(block, kBlockTokens * dim * (3 + 2 * kFloat));
  }
  constexpr int64_t kLists = int64_t{16} << 10;  // of partitions and ranges
  return static_cast<size_t>(pool_.threads() * (queries + rows + states + block + kLists));
}

void CpuAttention::Attend(const AttendArgs& args) {
  KVASIR_CHECK(args.layout.kv_heads > 0 && args.query_heads % args.layout.kv_heads == 0);
  const std::vector<QueryTile> few_rows = MakeTiles(args, true, pool_.threads());
  const std::vector<QueryTile> tiles = MakeTiles(args, false, pool_.threads());
  bool writes = args.new_values.data != nullptr;
  if (writes && !tiles.empty()) {
    EncodeKvRows(kernels_.table, pool_, args.layout, args.runs, args.new_keys, args.new_values);
    writes = false;
  }
  AttendByPartitions(args, few_rows, writes);
  if (static_cast<int>(tiles.size()) < pool_.threads()) {
    AttendByPartitions(args, tiles, false);
  } else {
    AttendByTiles(args, tiles);
  }
}

void CpuAttention::AttendByTiles(const AttendArgs& args, const std::vector<QueryTile>& tiles) {
  std::atomic<size_t> next{0};
  pool_.Run([&](int thread) {
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    if (scratch.queries.empty()) scratch.queries.resize(1);
    // A thread takes its next tile when it begins the last block of one, to fetch what it needs.
    size_t following = 0;
    const auto take = [&] {
      following = next.fetch_add(1);
      return following < tiles.size() ? FirstPlanes(args, tiles[following]) : HeadPlanes();
    };
    take();
    while (following < tiles.size()) {
      const QueryTile& tile = tiles[following];
      const int64_t rows = tile.rows(args);
      scratch.Resize(rows, args.layout);
      LoadQueries(kernels_, args, tile, scratch.queries[0]);
      const SoftmaxTotals totals = SoftmaxTotals::At(scratch.totals.data(), rows, args.layout);
      const TileHeads heads = {std::span(&tile, 1), std::span(scratch.queries).first(1),
                               scratch.partial.data(), 0};
      scratch.partitions.clear();
      ForEachPartition(
          args, tile, [&](const Partition& partition) { scratch.partitions.push_back(partition); });
      for (size_t i = 0; i < scratch.partitions.size(); ++i) {
        const Partition& partition = scratch.partitions[i];
        PartitionWalk walk(kernels_, args, heads, partition, false, scratch);
        walk.AllButLast();
        walk.Last(i + 1 < scratch.partitions.size() ? FirstPlanes(tile, scratch.partitions[i + 1])
                                                    : take());
        totals.Add(kernels_.table, partition.layout, heads.StateOf(0, args));
      }
      StoreOutput(kernels_.table, args, tile, totals.Finish(kernels_.table));
    }
  });
}

// Memory gives more where what is read lies side by side, as the heads of a block do: so a thread
// goes through partitions with all heads, or as many as it has, and sums are merged afterwards.
void CpuAttention::AttendByPartitions(const AttendArgs& args, const std::vector<QueryTile>& tiles,
                                      bool writes) {
  for (size_t begin = 0; begin < tiles.size();) {
    const size_t end = EndOfPlan(args, tiles, begin);
    const auto planned = std::span(tiles).subspan(begin, end - begin);
    Plan plan(args, planned, pool_.threads());
    if (writes && (planned.size() < tiles.size() || !plan.WriteNewRows(args))) {
      EncodeKvRows(kernels_.table, pool_, args.layout, args.runs, args.new_keys, args.new_values);
      writes = false;
    }
    ResizeScratch(plan.floats, &partials_);
    AttendToPartitions(args, plan);
    if (plan.steps.size() > plan.ranges()) MergePartitions(args, plan);
    begin = end;
  }
}

void CpuAttention::AttendToPartitions(const AttendArgs& args, const Plan& plan) {
  const PieceSizes sizes = {.least = kLeastHeads, .row = plan.heads};
  pool_.ForPieces(plan.items(), sizes, [&](int thread, const auto& take) {
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    scratch.queries.resize(std::max(scratch.queries.size(), plan.heads));
    scratch.loaded.assign(plan.heads, nullptr);
    size_t item = 0;
    size_t end = 0;
    // The next piece is taken when the last block of one is begun, to fetch what it needs.
    bool has_more = take(&item, &end);
    while (has_more) {
      const Plan::Step& step = plan.StepOf(item);
      const size_t head = item % plan.heads;
      const int64_t rows = step.tiles[0].rows(args);
      const auto together = static_cast<size_t>(std::max<int64_t>(1, kRowsTogether / rows));
      const size_t count = std::min({plan.heads - head, end - item, together});
      scratch.Resize(rows, args.layout, count);
      // Queries of few rows stay for the next partition, many make room for the next head's.
      const size_t slot = rows <= kFewQueryRows ? head : 0;
      const TileHeads heads = {step.tiles.subspan(head, count),
                               std::span(scratch.queries).subspan(slot, count),
                               scratch.partial.data(), step.state_floats};
      for (size_t i = 0; i < count; ++i) {
        const QueryTile* const tile = &heads.tiles[i];
        if (std::exchange(scratch.loaded[slot + i], tile) == tile) continue;
        LoadQueries(kernels_, args, *tile, heads.queries[i]);
      }
      PartitionWalk walk(kernels_, args, heads, step.partition, step.writes, scratch);
      walk.AllButLast();
      item += count;
      if (item == end) has_more = take(&item, &end);
      walk.Last(has_more ? plan.FirstPlanesOf(item) : HeadPlanes());
      if (step.is_only_one) {
        for (size_t i = 0; i < count; ++i) {
          const SoftmaxTotals totals = SoftmaxTotals::At(scratch.totals.data(), rows, args.layout);
          totals.Add(kernels_.table, step.partition.layout, heads.StateOf(i, args));
          StoreOutput(kernels_.table, args, heads.tiles[i], totals.Finish(kernels_.table));
        }
        continue;
      }
      // While states change they are the thread's own: side by side with those of other threads, a
      // CPU that fetches ahead would take these their lines, again and again.
      std::copy_n(scratch.partial.data(), count * step.state_floats,
                  partials_.data() + step.states + head * step.state_floats);
    }
  });
}

void CpuAttention::MergePartitions(const AttendArgs& args, const Plan& plan) {
  const size_t tiles = plan.ranges() * plan.heads;
  pool_.ForPieces(tiles, {}, [&](int thread, const auto& take) {
    size_t begin = 0;
    size_t end = 0;
    while (take(&begin, &end)) {
      for (size_t i = begin; i < end; ++i) {
        MergeTile(args, plan, i / plan.heads, i % plan.heads,
                  scratch_[static_cast<size_t>(thread)]);
      }
    }
  });
}

void CpuAttention::MergeTile(const AttendArgs& args, const Plan& plan, size_t range, size_t head,
                             Scratch& scratch) {
  const size_t first = plan.first_steps[range];
  const std::span steps = std::span(plan.steps).subspan(first, plan.first_steps[range + 1] - first);
  if (steps.size() == 1) return;  // stored where it was summed
  const QueryTile& tile = steps[0].tiles[head];
  const int64_t rows = tile.rows(args);
  scratch.Resize(rows, args.layout);
  const SoftmaxTotals totals = SoftmaxTotals::At(scratch.totals.data(), rows, args.layout);
  for (const Plan::Step& step : steps) {
    float* const state = partials_.data() + step.states + head * step.state_floats;
    totals.Add(kernels_.table, step.partition.layout,
               SoftmaxState::At(state, rows, args.layout.value_dim));
  }
  StoreOutput(kernels_.table, args, tile, totals.Finish(kernels_.table));
}

}  // namespace kvasir
