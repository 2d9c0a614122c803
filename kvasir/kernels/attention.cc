// Attention tiles of dense formats in SIMD: encode rows, scores, value sums of one block.
// Deliberately knows one head of one block at a time; the backend walks blocks and heads.
#include "kvasir/kernels/filled_rows.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/row_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

template <class Codec>
void EncodeRow(const float* row, int64_t dim, typename Codec::Stored* out) {
  constexpr int64_t kStep = kLanes;
  int64_t d = 0;
  for (; d + kStep <= dim; d += kStep) Codec::Encode(hn::LoadU(DF(), row + d), out + d);
  if (d < dim) {
    const size_t left = static_cast<size_t>(dim - d);
    EncodePartial<Codec>(LoadPartial(row + d, left), out + d, left);
  }
}

template <class Codec>
void EncodeValues(const EncodeArgs& args) noexcept {
  auto* plane = reinterpret_cast<typename Codec::Stored*>(args.plane);
  for (int64_t i = 0; i < args.count; ++i) {
    EncodeRow<Codec>(args.rows + i * args.row_stride, args.dim, plane + (args.slot + i) * args.dim);
  }
}

// Every dim of a key is a line of its own. Stores wait for theirs almost one by one, hints do not.
template <class Codec>
HWY_INLINE void FetchKeyLines(const typename Codec::Stored* first, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) __builtin_prefetch(first + d * kBlockTokens, 1);
}

template <class Codec>
void EncodeKeys(const EncodeArgs& args) noexcept {
  auto* plane = reinterpret_cast<typename Codec::Stored*>(args.plane);
  constexpr int64_t kChunk = 64;
  constexpr int64_t kLineSlots = 64 / sizeof(typename Codec::Stored);
  alignas(64) typename Codec::Stored encoded[kChunk];
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t slot = args.slot + i;
    if (i == 0 || slot % kLineSlots == 0) FetchKeyLines<Codec>(plane + slot, args.dim);
    for (int64_t begin = 0; begin < args.dim; begin += kChunk) {
      const int64_t count = HWY_MIN(kChunk, args.dim - begin);
      EncodeRow<Codec>(args.rows + i * args.row_stride + begin, count, encoded);
      typename Codec::Stored* out = plane + begin * kBlockTokens + slot;
      for (int64_t d = 0; d < count; ++d) out[d * kBlockTokens] = encoded[d];
    }
  }
}

template <class Codec>
void ScoreTile(const ScoreTileArgs& args) noexcept {
  RowTile<Codec> tile;
  tile.a_stride = args.query_stride;
  tile.b = reinterpret_cast<const typename Codec::Stored*>(args.keys);
  tile.b_stride = kBlockTokens;
  tile.b_rows = args.key_dim;
  tile.columns = args.tokens;
  tile.end = args.key_dim;
  tile.out_stride = kBlockTokens;
  // All is fetched during the first tile.
  PlanePrefetch next(args.next, RowTileSteps(NextTileRows(args.rows), args.key_dim, args.tokens));
  for (int64_t row = 0; row < args.rows;) {
    const int64_t rows = NextTileRows(args.rows - row);
    tile.next = row == 0 ? &next : nullptr;
    tile.a = args.queries + row * args.query_stride;
    tile.out = args.scores + row * kBlockTokens;
    Multiply(tile, rows);
    row += rows;
  }
}

// Rows [row, row + rows), none of them empty.
template <class Codec>
void AccumulateRows(const AccumulateTileArgs& args, int64_t row, int64_t rows,
                    PlanePrefetch* next) {
  // Tokens [begin, end) of one row or several, starting from accumulator * factors.
  const auto accumulate = [&args, next](int64_t first, int64_t count, int64_t begin, int64_t end,
                                        const float* factors) HWY_ATTR {
    RowTile<Codec> tile;
    tile.a = args.weights + first * kBlockTokens;
    tile.a_stride = kBlockTokens;
    tile.b = reinterpret_cast<const typename Codec::Stored*>(args.values);
    tile.b_stride = args.value_dim;
    tile.b_rows = kBlockTokens;
    tile.columns = args.value_dim;
    tile.next = next;
    tile.begin = begin;
    tile.end = end;
    tile.out = args.accumulator + first * args.accumulator_stride;
    tile.out_stride = args.accumulator_stride;
    tile.factors = factors;
    Multiply(tile, count);
  };
  int64_t begin = 0;
  int64_t end = kBlockTokens;
  for (int64_t r = row; r < row + rows; ++r) {
    begin = HWY_MAX(begin, static_cast<int64_t>(args.begin[r]));
    end = HWY_MIN(end, static_cast<int64_t>(args.end[r]));
  }
  if (begin >= end) {
    for (int64_t r = row; r < row + rows; ++r) {
      accumulate(r, 1, args.begin[r], args.end[r], args.rescale + r);
    }
    return;
  }
  // Every row sees [begin, end); what a row sees before and after goes row by row.
  float factors[kMaxTileRows];
  for (int64_t r = 0; r < rows; ++r) {
    const bool has_head = args.begin[row + r] < begin;
    if (has_head) accumulate(row + r, 1, args.begin[row + r], begin, args.rescale + row + r);
    factors[r] = has_head ? 1.0f : args.rescale[row + r];
  }
  accumulate(row, rows, begin, end, factors);
  const float one = 1.0f;
  for (int64_t r = row; r < row + rows; ++r) {
    if (end < args.end[r]) accumulate(r, 1, end, args.end[r], &one);
  }
}

template <class Codec>
void AccumulateTile(const AccumulateTileArgs& args) noexcept {
  FilledRows filled(args);
  bool fetched = false;
  while (const int64_t left = filled.Left()) {
    const int64_t rows = NextTileRows(left);
    const int64_t first = filled.row();
    // All is fetched during the first tile.
    PlanePrefetch next(args.next,
                       RowTileSteps(rows, args.end[first] - args.begin[first], args.value_dim));
    AccumulateRows<Codec>(args, first, rows, fetched ? nullptr : &next);
    fetched = true;
    filled.Skip(rows);
  }
}

template <class Codec>
void FillCodec(KvCodec::Kind kind, KernelTable* table) {
  const auto index = static_cast<size_t>(kind);
  table->kv[index].encode_keys = EncodeKeys<Codec>;
  table->kv[index].encode_values = EncodeValues<Codec>;
  table->kv[index].score_tile = ScoreTile<Codec>;
  table->kv[index].accumulate_tile = AccumulateTile<Codec>;
}

}  // namespace

void FillAttention(KernelTable* table) {
  FillCodec<F32Codec>(KvCodec::Kind::kF32, table);
  FillCodec<F16Codec>(KvCodec::Kind::kF16, table);
  FillCodec<Bf16Codec>(KvCodec::Kind::kBf16, table);
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillAttention)
#endif
