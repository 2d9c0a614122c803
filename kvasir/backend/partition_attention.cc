#include "kvasir/backend/partition_attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kvasir/backend/cpu_kv_rows.h"
#include "kvasir/base/math_constants.h"
#include "kvasir/base/scratch_vector.h"
#include "kvasir/kernels/derived_keys.h"

namespace kvasir {
namespace {

// The tile's queries as the keys of such blocks need them, if they are multiplied as integers.
void QuantizeQueries(const TileKernels& kernels, const KvBlockLayout& layout, int64_t rows,
                     const TileQueries& queries, IntegerQueryRows& integers) {
  const IntegerKvKernels* const integer = kernels.IntegerKeys(layout);
  if (integer == nullptr) return;
  const KvCodec codec = kernels.Multiplied(kernels.KeyCodec(layout), layout.key_dim);
  integers.Resize(rows, codec, layout.key_dim);
  integer->quantize_queries({.queries = (codec.rotates() ? queries.rotated : queries.plain).data(),
                             .query_stride = layout.key_dim,
                             .rows = rows,
                             .dim = layout.key_dim,
                             .codec = codec,
                             .unit = kernels.InBase2(layout) ? math::kLog2E : 1.0f,
                             .out = integers.view()});
}

// Leaves what each token of the tile sees in `segment`, and returns what all of them see.
RowRange LoadRanges(const AttendArgs& args, const QueryTile& tile, Segment segment,
                    std::vector<RowRange>& ranges) {
  RowRange common = {0, std::numeric_limits<int64_t>::max()};
  ranges.resize(static_cast<size_t>(tile.tokens));
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const RowRange range = SeenBy(args, tile, token, segment);
    ranges[static_cast<size_t>(token)] = range;
    common = {std::max(common.begin, range.begin), std::min(common.end, range.end)};
  }
  return common;
}

// Which rows of the block each query of the tile sees, from LoadRanges.
void LoadVisible(RowRange common, int64_t group, int64_t block, PartitionScratch& scratch) {
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

}  // namespace

void PartitionScratch::Resize(int64_t rows, const KvLayout& layout) {
  BlockScratch::Resize(rows, layout);
  if (layout.key_codec.kind == KvCodec::Kind::kFromValue) {
    ResizeScratch(KvCodec{KvCodec::Kind::kF32}.HeadBytes(layout.key_dim), &derived);
  }
}

size_t PartitionScratch::bytes() const {
  return BlockScratch::bytes() + derived.capacity() + turns.capacity() * sizeof(float) +
         ranges.capacity() * sizeof(RowRange);
}

void LoadQueries(const TileKernels& kernels, const AttendArgs& args, const QueryTile& tile,
                 TileQueries& queries) {
  const int64_t group = GroupOf(args);
  const int64_t dim = args.layout.key_dim;
  const int64_t rows = tile.rows(args);
  queries.Resize(rows, args.layout);
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const float* const row = args.queries.row(tile.step_row(token)) + tile.kv_head * group * dim;
    float* const out = queries.plain.data() + token * group * dim;
    std::copy_n(row, group * dim, out);
    kernels.table.scale(out, args.scale, group * dim);
  }
  const KvCodec& codec = args.layout.key_codec;
  if (kernels.HasPairs(codec, dim) || kernels.HasPairs(args.layout.dense_codec, dim)) {
    kernels.table.round_rows(queries.plain.data(), dim, rows, dim, queries.rounded.data());
  }
  if (codec.rotates()) {
    std::copy_n(queries.plain.data(), rows * dim, queries.rotated.data());
    kernels.table.rotate(queries.rotated.data(), dim, rows, dim);
  }
  const int64_t packed_from = args.layout.dense_start / kBlockTokens;
  const KvBlockLayout packed = args.layout.BlockAt(packed_from);
  QuantizeQueries(kernels, packed, rows, queries, queries.integers);
  if (kernels.IsAdaptive(packed)) {
    QuantizeQueries(kernels.WithOneByte(), packed, rows, queries, queries.one_byte);
  }
  if (args.layout.dense_start > 0 || args.layout.dense_recent > 0) {
    QuantizeQueries(kernels, args.layout.RecentBlock(), rows, queries, queries.dense_integers);
  }
}

HeadPlanes FirstPlanes(const QueryTile& tile, const Partition& partition) {
  return HeadMap(partition.layout)
      .PlanesOf(tile.kv_head, tile.blocks(partition.segment).block(partition.first_block()),
                partition.TokensOf(partition.first_block()));
}

PartitionWalk::PartitionWalk(const TileKernels& kernels, const AttendArgs& args,
                             const TileHeads& heads, const Partition& partition, bool writes,
                             PartitionScratch& scratch)
    : kernels_(kernels),
      args_(args),
      heads_(heads),
      partition_(partition),
      scratch_(scratch),
      map_(partition.layout),
      rows_(heads.tiles[0].rows(args)),
      common_(LoadRanges(args, heads.tiles[0], partition.segment, scratch.ranges)),
      writes_at_(writes ? heads.tiles[0].run->first_row / kBlockTokens : -1) {
  for (size_t head = 0; head < heads.tiles.size(); ++head) {
    heads.StateOf(head, args).Reset(rows_, partition.layout.value_dim);
  }
}

void PartitionWalk::AllButLast() {
  const size_t last = heads_.tiles.size() - 1;
  for (int64_t block = partition_.first_block();; ++block) {
    EnterBlock(block);
    for (size_t head = 0; head < last; ++head) Attend(head, PlanesOf(head + 1, block));
    if (block == partition_.last_block()) return;
    Attend(last, PlanesOf(0, block + 1));
  }
}

void PartitionWalk::Last(const HeadPlanes& behind) {
  Attend(heads_.tiles.size() - 1, behind);
  if (kernels_.IntegerValues(partition_.layout) == nullptr) return;
  for (size_t head = 0; head < heads_.tiles.size(); ++head) {
    const SoftmaxState state = heads_.StateOf(head, args_);
    for (int64_t r = 0; r < rows_; ++r) state.max[r] *= math::kLn2;
  }
}

void PartitionWalk::EnterBlock(int64_t block) {
  block_ = block;
  LoadVisible(common_, GroupOf(args_), block, scratch_);
  if (!partition_.layout.StoresKeys()) MakeTurns();
}

void PartitionWalk::MakeTurns() {
  const int64_t first = block_ * kBlockTokens;
  const std::span<const Position> given = heads_.tiles[0].run->positions;
  for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
    const auto row = static_cast<size_t>(first + slot);
    scratch_.positions[static_cast<size_t>(slot)] =
        row < given.size() ? given[row] : static_cast<Position>(first + slot);
  }
  ResizeScratch(KeyTurnFloats(args_.derivation), &scratch_.turns);
  MakeKeyTurns(kernels_.table.isa, args_.derivation, scratch_.positions, scratch_.turns.data());
}

const std::byte* PartitionWalk::DerivedKeys(const std::byte* values) {
  const KvBlockLayout& layout = partition_.layout;
  const int64_t first = block_ * kBlockTokens;
  const RowRange visible = partition_.rows;
  DeriveKeys(kernels_.table.isa,
             {.derivation = args_.derivation,
              .layout = &layout,
              .values = values,
              .positions = scratch_.positions,
              .turns = scratch_.turns.data(),
              .begin = static_cast<int>(std::max<int64_t>(visible.begin - first, 0)),
              .end = static_cast<int>(std::min<int64_t>(visible.end - first, kBlockTokens)),
              .codec = kernels_.KeyCodec(layout),
              .out = scratch_.derived.data()});
  return scratch_.derived.data();
}

HeadPlanes PartitionWalk::PlanesOf(size_t head, int64_t block) const {
  const QueryTile& tile = heads_.tiles[head];
  return map_.PlanesOf(tile.kv_head, tile.blocks(partition_.segment).block(block),
                       partition_.TokensOf(block));
}

void PartitionWalk::Attend(size_t head, const HeadPlanes& next) {
  if (block_ == writes_at_) {
    const QueryTile& tile = heads_.tiles[head];
    EncodeKvHeads(kernels_.table, args_.layout, *tile.run, args_.new_keys, args_.new_values,
                  tile.kv_head, tile.kv_head + 1);
  }
  const KvBlockLayout& layout = partition_.layout;
  TileQueries& queries = heads_.queries[head];
  HeadPlanes planes = PlanesOf(head, block_);
  const Upcoming upcoming(kernels_.FetchInto(layout), layout, planes, next,
                          kernels_.IntegerValues(layout) != nullptr);
  if (planes.keys == nullptr) {
    planes.keys = DerivedKeys(planes.values);
  }
  const SoftmaxState state = heads_.StateOf(head, args_);
  const BlockArgs block = {args_,   layout,   planes, upcoming, rows_, partition_.TokensOf(block_),
                           queries, scratch_, state};
  // The first block that a row sees is decisive for it.
  if (block_ > partition_.first_block() && kernels_.IsAdaptive(layout)) {
    return AttendAdaptively(kernels_, block);
  }
  const bool is_packed =
      layout.key_codec == args_.layout.key_codec && layout.value_codec == args_.layout.value_codec;
  AttendBlock(kernels_, block, (is_packed ? queries.integers : queries.dense_integers).view());
}

}  // namespace kvasir
