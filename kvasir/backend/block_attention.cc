#include "kvasir/backend/block_attention.h"

#include "kvasir/base/math_constants.h"

namespace kvasir {
namespace {

ScoreTileArgs ScoreArgs(const TileKernels& kernels, const BlockArgs& block,
                        const IntegerQueries& integers) {
  const KvBlockLayout& layout = block.layout;
  const TileQueries& queries = block.queries;
  return {.queries = (layout.key_codec.rotates() ? queries.rotated : queries.plain).data(),
          .query_stride = layout.key_dim,
          .rows = block.rows,
          .keys = block.planes.keys,
          .key_dim = layout.key_dim,
          .scores = block.scratch.scores.data(),
          .next = block.upcoming.scores,
          .codec = kernels.Multiplied(kernels.KeyCodec(layout), layout.key_dim),
          .tokens = block.tokens > kHalfBlock ? kBlockTokens : kHalfBlock,
          .integers = integers,
          .rounded = queries.rounded.data()};
}

// For weights that are integers, whose state.max is an exponent of 2.
WeighTileArgs WeighArgs(const TileKernels& kernels, const BlockArgs& block) {
  const bool base2 = kernels.InBase2(block.layout);
  const float softcap = block.args.softcap;
  BlockScratch& scratch = block.scratch;
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
          .codec = kernels.Multiplied(block.layout.value_codec, block.layout.value_dim),
          .next = block.upcoming.weights,
          .out = scratch.weights()};
}

AccumulateTileArgs AccumulateArgs(const TileKernels& kernels, const BlockArgs& block) {
  BlockScratch& scratch = block.scratch;
  return {.weights = scratch.scores.data(),
          .rows = block.rows,
          .begin = scratch.begin.data(),
          .end = scratch.end.data(),
          .rescale = scratch.rescale.data(),
          .values = block.planes.values,
          .value_dim = block.layout.value_dim,
          .accumulator = block.state.accumulator,
          .accumulator_stride = block.layout.value_dim,
          .next = block.upcoming.sums,
          .codec = kernels.Multiplied(block.layout.value_codec, block.layout.value_dim),
          .integers = scratch.weights()};
}

// Weights that are integers, of prepared scores, and the values.
void SumValues(const TileKernels& kernels, const BlockArgs& block) {
  kernels.IntegerValues(block.layout)->weigh_tile(WeighArgs(kernels, block));
  kernels.Accumulate(block.layout, AccumulateArgs(kernels, block));
}

// The same for the rows with these indices.
void SumValuesOf(std::span<const int32_t> rows, const TileKernels& kernels,
                 const BlockArgs& block) {
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
  kernels.Accumulate(block.layout, accumulate);
  some.Scatter(rows, whole);
}

// Prepared scores once more, of the rows with these indices.
void ScoreAgain(std::span<const int32_t> rows, const TileKernels& kernels, const BlockArgs& block) {
  const WeighTileArgs whole = WeighArgs(kernels, block);
  ScoreTileArgs score = ScoreArgs(kernels, block, block.queries.integers.view());
  score.next = {};
  if (static_cast<int64_t>(rows.size()) == block.rows) {
    kernels.Score(block.layout, score);
    kernels.table.prepare_scores(whole);
    return;
  }
  AdaptiveRows& adaptive = block.scratch.adaptive;
  adaptive.some_integers.Gather(block.queries.integers, rows, score.codec);
  score.integers = adaptive.some_integers.view();
  score.rows = static_cast<int64_t>(rows.size());
  score.index = rows.data();
  kernels.Score(block.layout, score);
  kernels.table.prepare_scores(adaptive.some.Gather(whole, rows));
  adaptive.some.Scatter(rows, whole);
}

// Fetches a plane that is read next and was fetched before: CPUs drop hints that come faster than
// memory answers, and asking again is cheaper than waiting for lines one by one
// (docs/performance/memory.md). Formats below a byte take longer to compute with than to read.
[[gnu::always_inline]] inline void FetchAgain(LinesAhead lines, const KvCodec& codec, int64_t dim) {
  lines.into = CacheLevel::kFirst;
  if (static_cast<int64_t>(codec.HeadBytes(dim)) >= kBlockTokens * dim) FetchLines(lines);
}

// A plane of that codec as kernels take it: itself, or what it is widened to into `out`.
const std::byte* Widened(const TileKernels& kernels, const KvCodec& codec, int64_t dim,
                         const std::byte* plane, AlignedVector<std::byte>& out) {
  if (!kernels.Widens(codec, dim)) return plane;
  kernels.table.widen[KvFormatIndex(codec)](
      {.plane = plane, .dim = dim, .codec = codec, .out = out.data()});
  return out.data();
}

// Leaves the block with planes as kernels take them.
void ScoreKeys(const TileKernels& kernels, BlockArgs& block, const IntegerQueries& integers) {
  HeadPlanes& planes = block.planes;
  const KvBlockLayout& layout = block.layout;
  planes.keys =
      Widened(kernels, layout.key_codec, layout.key_dim, planes.keys, block.scratch.widened_keys);
  // Keys that were asked for into the first-level cache were asked for in time.
  if (kernels.FetchInto(block.layout) == CacheLevel::kSecond) {
    FetchAgain(planes.key_lines, layout.key_codec, layout.key_dim);
  }
  kernels.Score(block.layout, ScoreArgs(kernels, block, integers));
  FetchAgain(planes.value_lines, layout.value_codec, layout.value_dim);
  // Not before: values are still on their way when keys are there.
  planes.values = Widened(kernels, layout.value_codec, layout.value_dim, planes.values,
                          block.scratch.widened_values);
}

}  // namespace

void AttendBlock(const TileKernels& kernels, BlockArgs block, const IntegerQueries& integers) {
  ScoreKeys(kernels, block, integers);
  if (kernels.IntegerValues(block.layout) != nullptr) {
    kernels.table.prepare_scores(WeighArgs(kernels, block));
    return SumValues(kernels, block);
  }
  BlockScratch& scratch = block.scratch;
  kernels.table.softmax_tile({.scores = scratch.scores.data(),
                              .rows = block.rows,
                              .begin = scratch.begin.data(),
                              .end = scratch.end.data(),
                              .softcap = block.args.softcap,
                              .max = block.state.max,
                              .sum = block.state.sum,
                              .rescale = scratch.rescale.data()});
  kernels.Accumulate(block.layout, AccumulateArgs(kernels, block));
}

void AttendAdaptively(const TileKernels& kernels, BlockArgs block) {
  AdaptiveRows& adaptive = block.scratch.adaptive;
  const TileKernels one_byte = kernels.WithOneByte();
  ScoreKeys(one_byte, block, block.queries.one_byte.view());
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

}  // namespace kvasir
