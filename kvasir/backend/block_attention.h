// A tile of queries at one block of the cache: scores, softmax and value sums, with one byte or two
// where that is decided block by block (docs/numerics.md).
// Deliberately without the walk over blocks, partitions and tiles: that is partition_attention.cc.
#ifndef KVASIR_BACKEND_BLOCK_ATTENTION_H_
#define KVASIR_BACKEND_BLOCK_ATTENTION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/backend/softmax_state.h"
#include "kvasir/backend/tile_kernels.h"
#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/scratch_vector.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// One head's part of a block: null where there is none.
struct HeadPlanes {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  // Their lines that are read.
  LinesAhead key_lines;
  LinesAhead value_lines;
};

// Where heads lie in blocks of a layout, worked out once.
class HeadMap {
 public:
  explicit HeadMap(const KvBlockLayout& layout)
      : key_bytes_(static_cast<int64_t>(layout.KeyHeadBytes())),
        value_bytes_(static_cast<int64_t>(layout.ValueHeadBytes())),
        values_(static_cast<int64_t>(layout.KeyPlaneBytes())),
        half_key_step_(HalfKeyStep(layout)),
        token_value_bytes_(layout.value_codec.is_packed() ? 0 : value_bytes_ / kBlockTokens),
        stores_keys_(layout.StoresKeys()) {}

  // Of a block whose first `tokens` tokens are seen.
  HeadPlanes PlanesOf(int kv_head, const std::byte* block, int64_t tokens) const {
    HeadPlanes planes;
    planes.values = block + values_ + kv_head * value_bytes_;
    planes.value_lines = {planes.values,
                          token_value_bytes_ > 0 ? tokens * token_value_bytes_ : value_bytes_};
    if (!stores_keys_) return planes;
    planes.keys = block + kv_head * key_bytes_;
    planes.key_lines = {planes.keys, key_bytes_, tokens > kHalfBlock ? kLine : half_key_step_};
    return planes;
  }

 private:
  static constexpr int64_t kLine = kCacheLineBytes;

  // Keys of half a block lie in the first of so many bytes each (ScoreTileArgs::tokens).
  static int64_t HalfKeyStep(const KvBlockLayout& layout) {
    if (layout.key_codec.is_packed() || !layout.StoresKeys()) return kLine;
    const int64_t dim_bytes = static_cast<int64_t>(layout.KeyHeadBytes()) / layout.key_dim;
    return dim_bytes == 2 * kLine ? dim_bytes : kLine;
  }

  int64_t key_bytes_;    // of a head
  int64_t value_bytes_;  // of a head
  int64_t values_;       // from where on
  int64_t half_key_step_;
  int64_t token_value_bytes_;  // 0 where tokens do not lie one behind the other
  bool stores_keys_;
};

// What is fetched while a block is read: as far ahead as the cache that it goes into has room for.
struct Upcoming {
  Upcoming() = default;
  // Of a block of this layout; `has_integer_weights`: of its values.
  Upcoming(CacheLevel into, const KvBlockLayout& layout, const HeadPlanes& now,
           const HeadPlanes& next, bool has_integer_weights) {
    // The first level holds little more than two planes: the plane at hand and the one behind it.
    const bool is_near = into == CacheLevel::kFirst && now.keys != nullptr;
    scores = is_near ? now.value_lines : next.key_lines;
    sums = is_near ? next.key_lines : next.value_lines;
    for (LinesAhead* lines : {&scores, &sums}) lines->into = into;
    if (!has_integer_weights) return;
    // Making them takes as long as scores or sums; of packed formats as long as both.
    if (layout.value_codec.is_packed() && !is_near && next.keys != nullptr) {
      weights = scores.SecondHalf();
      scores = scores.FirstHalf();
    } else {
      weights = sums.FirstHalf();
      sums = sums.SecondHalf();
    }
  }

  LinesAhead scores;
  LinesAhead weights;
  LinesAhead sums;
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
    ResizeScratch(static_cast<size_t>(rows * IntegerQueries::CodeBytes(dim)), &codes);
    ResizeScratch(static_cast<size_t>(rows * groups), &starts);
    ResizeScratch(2 * starts.size(), &steps);
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
    for (auto* each : {&begin, &end}) ResizeScratch(count, each);
    for (auto* each : {&max, &sum, &largest}) ResizeScratch(count, each);
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

// A tile's queries, scaled, in every form that its keys are multiplied with.
struct TileQueries {
  std::vector<float> plain;        // [rows, key_dim]
  std::vector<float> rotated;      // [rows, key_dim], if some keys are
  std::vector<std::byte> rounded;  // as round_rows has them, if some keys are in pairs
  // As integers, if keys are multiplied as such: with the width that the format calls for, with one
  // byte where that is tried first, and for dense blocks of a packed cache, whose codes and whose
  // unit differ.
  IntegerQueryRows integers;
  IntegerQueryRows one_byte;
  IntegerQueryRows dense_integers;

  void Resize(int64_t rows, const KvLayout& layout) {
    ResizeScratch(static_cast<size_t>(rows * layout.key_dim), &plain);
    if (layout.key_codec.rotates()) ResizeScratch(plain.size(), &rotated);
    if (layout.key_codec.kind == KvCodec::Kind::kBf16 ||
        layout.dense_codec.kind == KvCodec::Kind::kBf16) {
      ResizeScratch(static_cast<size_t>(rows * KernelTable::RoundedBytes(layout.key_dim)),
                    &rounded);
    }
  }
  size_t bytes() const {
    return (plain.capacity() + rotated.capacity()) * sizeof(float) + rounded.capacity() +
           integers.bytes() + one_byte.bytes() + dense_integers.bytes();
  }
};

// Where one byte is enough for some rows and two are for others.
struct AdaptiveRows {
  std::vector<int32_t> decisive;   // [rows]: those that take two
  std::vector<int32_t> others;     // [rows]
  IntegerQueryRows some_integers;  // with two bytes, side by side
  SomeRows some;

  void Resize(int64_t rows) {
    ResizeScratch(static_cast<size_t>(rows), &decisive);
    ResizeScratch(static_cast<size_t>(rows), &others);
    some.Resize(rows);
  }
  size_t bytes() const {
    return some_integers.bytes() + some.bytes() +
           (decisive.capacity() + others.capacity()) * sizeof(int32_t);
  }
};

// The working memory of a tile at a block.
struct BlockScratch {
  AlignedVector<float> scores;   // [rows, 64]
  AlignedVector<float> largest;  // [rows]: of the scores, where weights are integers
  std::vector<float> rescale;    // [rows]
  AdaptiveRows adaptive;
  // The weights as integers, if values are multiplied as such: codes, and steps before shifts
  // before tops before rounders.
  AlignedVector<std::byte> weight_codes;
  std::vector<float> weight_steps;
  std::vector<int32_t> weight_starts;
  // The head's planes, if integer kernels do not know their codecs.
  AlignedVector<std::byte> widened_keys;
  AlignedVector<std::byte> widened_values;
  std::vector<int32_t> begin;  // [rows]: what each sees of the block
  std::vector<int32_t> end;    // [rows]

  void Resize(int64_t rows, const KvLayout& layout) {
    const size_t count = static_cast<size_t>(rows);
    ResizeScratch(count * kBlockTokens, &scores);
    ResizeScratch(count, &rescale);
    ResizeScratch(count * static_cast<size_t>(IntegerGroups(layout.value_codec, layout.value_dim)),
                  &weight_starts);
    ResizeScratch(2 * weight_starts.size() + count + kBlockTokens, &weight_steps);
    ResizeScratch(weight_starts.size() * IntegerWeights::kCodeBytes, &weight_codes);
    ResizeScratch(count, &begin);
    ResizeScratch(count, &end);
    ResizeScratch(count, &largest);
    adaptive.Resize(rows);
    ResizeWidened(layout.key_codec, layout.key_dim, widened_keys);
    ResizeWidened(layout.value_codec, layout.value_dim, widened_values);
  }
  static void ResizeWidened(const KvCodec& codec, int64_t dim, AlignedVector<std::byte>& widened) {
    if (IsWidened(codec)) ResizeScratch(WidenedCodec(codec, dim).HeadBytes(dim), &widened);
  }
  IntegerWeights weights() {
    float* const shifts = weight_steps.data() + weight_starts.size();
    float* const tops = shifts + weight_starts.size();
    return {weight_codes.data(),  weight_steps.data(), shifts, weight_starts.data(), tops,
            tops + rescale.size()};
  }
  size_t bytes() const {
    return adaptive.bytes() + weight_codes.capacity() + widened_keys.capacity() +
           widened_values.capacity() +
           (scores.capacity() + rescale.capacity() + weight_steps.capacity() +
            weight_starts.capacity() + largest.capacity() + begin.capacity() + end.capacity()) *
               sizeof(float);
  }
};

// A tile at a block.
struct BlockArgs {
  const AttendArgs& args;
  const KvBlockLayout& layout;
  HeadPlanes planes;  // with keys, which may be derived ones
  Upcoming upcoming;
  int64_t rows;
  int64_t tokens;  // the first so many of the block are seen by some row
  TileQueries& queries;
  BlockScratch& scratch;
  const SoftmaxState& state;
};

// Adds the block to the state of every row that sees something of it. `integers`: the queries, if
// its keys are multiplied as such.
void AttendBlock(const TileKernels& kernels, BlockArgs block, const IntegerQueries& integers);

// The same with one byte, and with two for the rows for which that proves the block to be decisive.
// REQUIRES: kernels.IsAdaptive(block.layout), and block.queries has both.
void AttendAdaptively(const TileKernels& kernels, BlockArgs block);

}  // namespace kvasir

#endif  // KVASIR_BACKEND_BLOCK_ATTENTION_H_
