// The kernel table: every SIMD loop of the CPU backend, once per instruction set.
// All pointers are raw, nothing allocates, nothing throws, everything is single-threaded: the
// backend splits work. Deliberately knows neither sequences nor layers.
//
// Numerics (docs/numerics.md). Every table computes the same bits:
//  - a dot product over inputs is one chain of fused multiply-adds in ascending order, lanes run
//    over outputs (matmul), tokens of a block (scores) or value_dim (value sums);
//  - reductions that cannot run over outputs use 16 virtual lanes (element i goes to lane i % 16,
//    each lane in ascending order) and one fixed tree: lanes l and l+8, then l+4, l+2, l+1;
//  - exp, tanh are polynomials of ours, from the same operations in the same order everywhere.
#ifndef KVASIR_KERNELS_KERNELS_H_
#define KVASIR_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kernels/delta_net.h"
#include "kvasir/kernels/prefetching.h"
#include "kvasir/tensor/kv_layout.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir {

// kAvx2Vnni is AVX2 with AVX-VNNI (Alder Lake, Zen 5 and later), kNeonDotprod NEON with SDOT (most
// 64-bit ARM CPUs since 2018): products of bytes four times as wide. kAvx512 and later have them.
// kNeonI8mm has products of matrices of bytes besides (Neoverse V1 and N2, Apple's M2 and later).
enum class Isa { kScalar, kNeon, kNeonDotprod, kNeonI8mm, kAvx2, kAvx2Vnni, kAvx512 };
inline constexpr size_t kIsas = 7;
std::string_view IsaName(Isa isa);
// ERRORS: kInvalidArgument, listing the names that exist.
Result<Isa> IsaFromName(std::string_view name);

// out[r][n] = bias[n] + sum over k of x[r][k] * W[n][k] (bf16_dot, mxfp8: as bf16_pairs.h has it;
// fp8: so by 128 inputs), for the outputs of panels [panel_begin, panel_end). The bias is added
// last. Rows [0, rows).
struct MatmulArgs {
  const float* x = nullptr;  // [rows, inputs], f32, f16 and bf16 only
  int64_t x_stride = 0;
  const std::byte* x_rounded = nullptr;  // of RoundsInputs formats: what round_rows made of x
  // Other quantized weight formats only: what quantize_rows made of x.
  const int8_t* x_codes = nullptr;  // [rows, inputs]
  const float* x_scales = nullptr;  // [rows, inputs/32]
  const int32_t* x_sums = nullptr;  // [rows, inputs/32]: sum of a group's codes
  // q6_k, q3_k, q2_k and nvfp4 only: the sum of the first 16 codes of each group, [rows,
  // inputs/32].
  const int32_t* x_half_sums = nullptr;
  int64_t rows = 0;
  const PackedMatrix* weights = nullptr;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  const float* bias = nullptr;  // [outputs] or null
  float* out = nullptr;         // [rows, outputs]; only this panel range is written
  int64_t out_stride = 0;
  // Of weights that few rows read next; Prefetching::weights and streams_weights.
  CacheLevel fetch_into = CacheLevel::kSecond;
  bool may_stream = false;
};

// Groups of dims that have a scale each in integer kernels: of f16 there is one.
constexpr int64_t IntegerGroups(const KvCodec& codec, int64_t dim) {
  return codec.group == 0 ? 1 : dim / codec.group;
}

// Integer kernels know codes of 8 and 4 bits. Rows of 2, 3, 5 and 6 bits and turbo's are widened to
// rows of 8 bits for them, a block at a time, with parameters in f32; turbo's are then one group of
// all dims. With m = KeyMiddle of the format (integer_steps.h):
//   affine  byte = code + 128 - m; scale as it is; bias = fma(m - 128, scale, bias)
//   turbo   byte of TurboBytesOf; scale = norm * unit; bias = -128 * scale
// so a row is the same up to the rounding of its biases and, of turbo, of its levels to bytes.
constexpr bool IsWidened(const KvCodec& codec) {
  return codec.kind == KvCodec::Kind::kTurbo ||
         (codec.kind == KvCodec::Kind::kAffine && codec.bits != 8 && codec.bits != 4);
}
// REQUIRES: IsWidened(codec).
inline KvCodec WidenedCodec(const KvCodec& codec, int64_t dim) {
  const bool is_turbo = codec.kind == KvCodec::Kind::kTurbo;
  return {KvCodec::Kind::kAffine, 8, is_turbo ? static_cast<uint16_t>(dim) : codec.group,
          KvCodec::Scales::kF32, codec.rotates()};
}
// Dims of widened rows are a multiple of this, or they are not multiplied as integers.
inline constexpr int64_t kWidenedDims = 32;

struct WidenArgs {
  const std::byte* plane = nullptr;  // one head of a key or value plane
  int64_t dim = 0;
  KvCodec codec;             // of the plane. REQUIRES: IsWidened(codec)
  std::byte* out = nullptr;  // the same rows in WidenedCodec; aligned to 64 bytes
};

// Queries as integers (IntegerKvKernels), [rows]: what quantize_queries writes and score_tile
// reads. Codes are in an arrangement of the table's and the width's own; the same must read them.
struct IntegerQueries {
  std::byte* codes = nullptr;  // [rows][CodeBytes]
  float* scales = nullptr;     // [rows][IntegerGroups]
  float* sums = nullptr;       // [rows][IntegerGroups], affine only
  int32_t* starts = nullptr;   // [rows][IntegerGroups], affine only

  static constexpr int64_t CodeBytes(int64_t dim) { return 2 * dim; }
};
struct IntegerQueryArgs {
  const float* queries = nullptr;  // [rows, dim], scaled, and rotated if the codec rotates
  int64_t query_stride = 0;
  int64_t rows = 0;
  int64_t dim = 0;
  KvCodec codec;      // of the keys
  float unit = 1.0f;  // scores are those of queries times this
  IntegerQueries out;
};

// Tokens whose scores can be made without those behind them: whole lines of dense keys of 16 bits.
inline constexpr int64_t kHalfBlock = kBlockTokens / 2;

// Query rows that share one KV head, for one block. Row-major state per query row.
// scores and weights are [rows, 64].
struct ScoreTileArgs {
  const float* queries = nullptr;  // [rows, key_dim], already scaled
  int64_t query_stride = 0;
  int64_t rows = 0;
  const std::byte* keys = nullptr;  // one head of a key plane
  int64_t key_dim = 0;
  float* scores = nullptr;  // those outside the visible range mean nothing
  LinesAhead next;  // what is read after `keys`, such as the block's values: fetched meanwhile
  KvCodec codec;
  // Scores of the first so many tokens are written, of the others where that costs nothing: all of
  // the block or kHalfBlock.
  int64_t tokens = kBlockTokens;
  IntegerQueries integers = {};        // integer kernels only, which read no `queries`
  const std::byte* rounded = nullptr;  // pair kernels only, the same: what round_rows made of them
  const int32_t* index = nullptr;      // [rows] which rows of `scores` they are; null: the first
                                       // ones. Integer kernels of affine keys only.

  float* ScoresOf(int64_t row) const {
    return scores + (index != nullptr ? index[row] : row) * kBlockTokens;
  }
};

struct SoftmaxTileArgs {
  float* scores = nullptr;  // in: scores; out: exp(score - max), 0 outside [begin, end)
  int64_t rows = 0;
  const int32_t* begin = nullptr;  // [rows] visible tokens of the block, 0 <= begin <= end <= 64
  const int32_t* end = nullptr;    // [rows]
  float softcap = 0;               // score = softcap * tanh(score / softcap) first; 0: off
  // Running state of the online softmax (Milakov & Gimelshein 2018), [rows]:
  float* max = nullptr;      // starts at -infinity
  float* sum = nullptr;      // starts at 0
  float* rescale = nullptr;  // out: what accumulate_tile multiplies the accumulator with
  // A row with begin == end is left alone, its rescale is 1.
};

// Weights as integers (IntegerKvKernels), [rows]: what weigh_tile writes and accumulate_tile reads.
// Codes and starts are in an arrangement of the table's and the width's own; the same must read
// them, with as many rows. Rows that see nothing are not written.
struct IntegerWeights {
  std::byte* codes = nullptr;  // room for [IntegerGroups][rows][kCodeBytes]
  float* steps = nullptr;      // [IntegerGroups][rows]
  float* shifts = nullptr;     // [IntegerGroups][rows], affine only
  int32_t* starts = nullptr;   // [IntegerGroups][rows], affine only
  float* tops = nullptr;       // [rows]: of weigh_tile's own
  float* rounders = nullptr;   // [64], f16 only: what makes codes of a token's values

  static constexpr int64_t kCodeBytes = 2 * kBlockTokens;
};

// The softmax of integer value kernels, in the order prepare_scores, weigh_tile.
struct WeighTileArgs {
  float* scores = nullptr;  // [rows, 64]; weigh_tile leaves what means nothing
  int64_t rows = 0;
  const int32_t* begin = nullptr;  // as in SoftmaxTileArgs
  const int32_t* end = nullptr;
  float softcap = 0;      // in the unit of the scores; 0: off
  float to_base2 = 1.0f;  // what makes scores exponents of 2
  // Running state as in SoftmaxTileArgs, but `max` is an exponent of 2, and below the largest score
  // by up to kReferenceSlack.
  float* max = nullptr;
  float* sum = nullptr;
  float* rescale = nullptr;
  float* largest = nullptr;  // [rows]: the largest visible score of each, from prepare_scores
  const std::byte* values = nullptr;  // one head of a value plane
  int64_t value_dim = 0;
  KvCodec codec;
  LinesAhead next;  // as in ScoreTileArgs, such as the first half of the next block's keys
  IntegerWeights out;
  const int32_t* index = nullptr;  // as in ScoreTileArgs; affine values only

  float* ScoresOf(int64_t row) const {
    return scores + (index != nullptr ? index[row] : row) * kBlockTokens;
  }
};

// Rows that see something of a block, each list in ascending order and with room for all rows. The
// others are listed only if some are decisive.
struct DecisiveRows {
  int32_t* decisive = nullptr;
  int64_t decisive_count = 0;
  int32_t* others = nullptr;
  int64_t others_count = 0;
};

struct AccumulateTileArgs {
  const float* weights = nullptr;  // [rows, 64], from softmax_tile
  int64_t rows = 0;
  const int32_t* begin = nullptr;  // as in SoftmaxTileArgs: rows of V outside are never read into
  const int32_t* end = nullptr;    // a result, so they may hold anything
  const float* rescale = nullptr;  // [rows]
  const std::byte* values = nullptr;  // one head of a value plane
  int64_t value_dim = 0;
  float* accumulator =
      nullptr;  // [rows, value_dim]: acc = acc * rescale, then fma(w[t], v[t], acc)
  int64_t accumulator_stride = 0;
  LinesAhead next;  // as in ScoreTileArgs, such as the keys of the next block
  KvCodec codec;
  IntegerWeights integers = {};    // integer kernels only, which read no `weights`
  const int32_t* index = nullptr;  // [rows] which rows of `accumulator` they are; null: the first
                                   // ones. Integer kernels of affine values only.

  float* AccumulatorOf(int64_t row) const {
    return accumulator + (index != nullptr ? index[row] : row) * accumulator_stride;
  }
};

// `count` tokens' rows of one head into a plane, from token slot `slot` on (slot + count <= 64).
struct EncodeArgs {
  const float* rows = nullptr;  // row i at rows + i * row_stride, dim floats
  int64_t row_stride = 0;
  int64_t count = 0;
  int64_t dim = 0;
  int64_t slot = 0;
  std::byte* plane = nullptr;  // one head of a key or value plane
  KvCodec codec;
};

// The kernels of one cache format. Those of a packed format serve every group size and scale type.
//
// Keys, packed: with q the queries (rotated if the codec rotates), per group g of dims in ascending
// order: part = chain over the group's dims of fma(q[d], level(code), part) from 0, then
//   affine: score = fma(scale[g][t], part, score), then score = fma(bias[g][t], qsum[g], score),
//           qsum[g] = sum over 16 virtual lanes of the group's q; level(code) = code
//   turbo:  one group of all dims; score = norm[t] * part; level(code) = the codebook's
// Values, packed, per row that sees anything; w, scale, bias and norm count as 0 for the tokens it
// does not see, and turbo is one group with scale = norm:
//   acc[d] = acc[d] * rescale, then for t = 0, 1, ..., 63:
//            acc[d] = fma(w[t] * scale[g][t], level(code), acc[d]), then acc[d] += shift[g]
//   affine: shift[g] = 16 virtual lanes of fma(w[t], bias[g][t], lane), summed
//   turbo:  shift = 0: it only makes a zero positive, whatever the codes of unseen tokens
// The accumulator of a codec that rotates holds rotated sums: the caller rotates them back.
struct KvCodecKernels {
  void (*encode_keys)(const EncodeArgs&) noexcept;
  void (*encode_values)(const EncodeArgs&) noexcept;
  void (*score_tile)(const ScoreTileArgs&) noexcept;
  void (*accumulate_tile)(const AccumulateTileArgs&) noexcept;
};

// The same tiles of an affine cache of 8 or 4 bits in integers, and of one of f16 with two bytes;
// null for every other format, of which some can be widened. The steps, the levels of codes and
// their centres are those of integer_steps.h. With groups g of dims as above, and every sum of
// products exact:
//   quantize_queries  step = largest |q| of g / 127 (two bytes: / 32512), times unit
//                     code[d] = round-to-even(q[d] * (127 / largest)); of one byte balanced
//                     sum = q over 16 virtual lanes, times unit
//                     start = -KeyMiddle * sum of code[d]
//   score_tile        part = float(sum over d of code[d] * (key code[t][d] - KeyMiddle)) * step
//                     centre = fma(KeyMiddle, scale[g][t], bias[g][t])
//                     score = fma(scale[g][t], part, score), then fma(centre, sum, score)
//   prepare_scores    score = softcap as in softmax_tile, times to_base2
//   weigh_tile        largest = of the visible scores; if largest > max + kReferenceSlack:
//                     new max = largest, rescale = 2^(max - new max), or 1 where max was -infinity
//                     w[t] = the integer that score[t] weighs below largest, 0 outside the visible
//                     range; top = 2^(largest - max)
//                     sum = fma(top, (sum of w) * kWeightUnit, sum * rescale)
//                     code[t] = w[t] times |scale[g][t]|, rounded by WeightRoundingOf; step = that
//                     of these codes, times top
//                     C = largest |centre[g][t]|, c[t] = round-to-even(centre[g][t] * (8191 / C))
//                     shift[g] = w[t] * c[t] in the lanes of PairLaneOf, exact, as floats, summed,
//                     * (C / 8191 * kWeightUnit * top)
//   accumulate_tile   acc[d] = fma(float(sum over t of code[t] * level[t][d]), step,
//                     acc[d] * rescale), then + shift[g]
// where only tokens that the row sees count. An infinity of `largest` or max counts from 0 if it is
// negative.
//
// Keys and values of f16 are rounded as well, to codes that count steps scale[t] of each token: a
// power of two, HalfStepsOf its largest magnitude. With levels = 8191:
//   quantize_queries  step = largest |q| / levels, times unit
//                     code[d] = round-to-even(q[d] * (levels / largest))
//   score_tile        part = sum over 32 dims of code[d] * key code[t][d], exact
//                     score = float of all parts in ascending order, summed, * scale[t] * step
//   weigh_tile        as above with no centre, and kHalfWeightRounding
//   accumulate_tile   part = sum over 32 tokens of code[t] * value code[t][d], exact
//                     acc[d] = fma(float(first part) + float(last part), step, acc[d] * rescale)
// REQUIRES: dims are a multiple of kHalfDims.
struct IntegerKvKernels {
  void (*quantize_queries)(const IntegerQueryArgs&) noexcept;
  void (*score_tile)(const ScoreTileArgs&) noexcept;
  void (*weigh_tile)(const WeighTileArgs&) noexcept;
  void (*accumulate_tile)(const AccumulateTileArgs&) noexcept;
};

// The same tiles of keys or values of bf16 in pairs: the sums of bf16_pairs.h, with queries and
// weights as its inputs, keys and values as its weights. Pairs are dims (2j, 2j + 1) of a key and
// tokens (2j, 2j + 1) of a value.
//   score_tile       score = sum over d of query[d] * key[t][d]
//   accumulate_tile  acc[d] = fma(acc[d], rescale, sum over t of w[t] * value[t][d])
// where values of tokens that the row does not see count as 0. REQUIRES: key_dim is even, and w of
// such tokens is 0, as softmax_tile leaves it.
struct PairKvKernels {
  void (*score_tile)(const ScoreTileArgs&) noexcept;
  void (*accumulate_tile)(const AccumulateTileArgs&) noexcept;
};

// What queries and weights are rounded to in integer attention, each with bits of its own.
enum class MultiplierWidth { kOneByte, kTwoBytes };
inline constexpr size_t kMultiplierWidths = 2;

// f32, f16, bf16, affine 2 3 4 5 6 8, turbo 2 3 4.
inline constexpr size_t kKvFormats = 12;
inline constexpr size_t kFirstPackedFormat = 3;
// Index of a codec's kernels. REQUIRES: is_dense() or is_packed().
inline size_t KvFormatIndex(const KvCodec& codec) {
  if (codec.is_dense()) return static_cast<size_t>(codec.kind);
  const size_t bits = codec.bits;
  return codec.kind == KvCodec::Kind::kAffine ? 3 + (bits == 8 ? 5 : bits - 2) : 9 + bits - 2;
}

struct KernelTable {
  Isa isa;

  // Indexed by WeightFormat.
  void (*matmul[kWeightFormats])(const MatmulArgs&) noexcept;
  // Per row and group of 32: scale = max|x| / 127, code = round-to-even(x / scale) (0 if scale is
  // 0), sum of codes. A group holding a non-finite value gets a NaN scale, so the result is NaN.
  void (*quantize_rows)(const float* x, int64_t x_stride, int64_t rows, int64_t inputs,
                        int8_t* codes, float* scales, int32_t* sums) noexcept;

  // bf16_pairs::RoundInput of rows, each in RoundedBytes(inputs) and in an arrangement of the
  // table's own: the same table must read them. REQUIRES: inputs is even.
  void (*round_rows)(const float* x, int64_t x_stride, int64_t rows, int64_t inputs,
                     std::byte* rounded) noexcept;
  static constexpr int64_t RoundedBytes(int64_t inputs) { return 4 * inputs; }

  KvCodecKernels kv[kKvFormats];  // by KvFormatIndex
  const KvCodecKernels& ForCodec(const KvCodec& codec) const { return kv[KvFormatIndex(codec)]; }
  IntegerKvKernels integer_kv[kMultiplierWidths][kKvFormats];  // by width and KvFormatIndex
  // Null if the format has none.
  const IntegerKvKernels* IntegerForCodec(const KvCodec& codec, MultiplierWidth width) const {
    const IntegerKvKernels& kernels = integer_kv[static_cast<size_t>(width)][KvFormatIndex(codec)];
    return kernels.score_tile == nullptr ? nullptr : &kernels;
  }
  void (*widen[kKvFormats])(const WidenArgs&) noexcept;  // by KvFormatIndex; null: not widened
  // What weigh_tile needs before it: caps scores, brings them to base 2, makes those that a row
  // does not see -infinity, and leaves `largest`. A row that sees nothing is left alone.
  void (*prepare_scores)(const WeighTileArgs&) noexcept;
  // Finds the rows for which a block is decisive (kDecisiveShare), by `largest` and the state
  // before weigh_tile.
  void (*find_decisive)(const WeighTileArgs& args, DecisiveRows& out) noexcept;
  PairKvKernels pair_kv;
  void (*softmax_tile)(const SoftmaxTileArgs&) noexcept;

  // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; weight may be null (ones). In place allowed.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t count,
                   float* out) noexcept;
  // rotation.h's Rotate and RotateBack of `rows` vectors of dim floats, in place.
  void (*rotate)(float* x, int64_t stride, int64_t rows, int64_t dim) noexcept;
  void (*rotate_back)(float* x, int64_t stride, int64_t rows, int64_t dim) noexcept;
  // sqrt(sum of x^2), over 16 virtual lanes.
  float (*norm)(const float* x, int64_t count) noexcept;
  // Half-split rotation of one head of 2 * pairs numbers, in place (pair i, i + pairs).
  void (*rope)(float* x, const float* cos, const float* sin, int64_t pairs) noexcept;
  // gate[i] = act(gate[i]) * up[i]
  void (*silu_gate)(float* gate, const float* up, int64_t count) noexcept;
  void (*gelu_tanh_gate)(float* gate, const float* up, int64_t count) noexcept;
  // With g = min(gate, 7) and u = up within +-7: gate = g * sigmoid(1.702 g) * (u + 1), as the
  // experts of gpt-oss have it.
  void (*clamped_gate)(float* gate, const float* up, int64_t count) noexcept;
  // gate = up * sigmoid(gate), as up / (1 + exp(-gate))
  void (*sigmoid_gate)(float* gate, const float* up, int64_t count) noexcept;
  // gate = gate * up
  void (*product_gate)(float* gate, const float* up, int64_t count) noexcept;
  void (*add)(float* accumulator, const float* x, int64_t count) noexcept;
  void (*scale)(float* x, float factor, int64_t count) noexcept;
  // out[i] = x[i] / divisor
  void (*divide)(const float* x, float divisor, int64_t count, float* out) noexcept;
  // accumulator[i] = accumulator[i] * keep + x[i] * take, each product rounded.
  void (*merge)(float* accumulator, float keep, const float* x, float take, int64_t count) noexcept;
  // x = cap * tanh(x / cap)
  void (*softcap)(float* x, float cap, int64_t count) noexcept;
  // In place: exp(x - max(x)) / sum. REQUIRES: count > 0.
  void (*softmax)(float* x, int64_t count) noexcept;
  // Index of the largest; the lowest index of equals; NaN counts as smallest; 0 if all are NaN.
  int64_t (*argmax)(const float* x, int64_t count) noexcept;

  void (*causal_conv)(const CausalConvArgs&) noexcept;
  void (*delta_gates)(const DeltaGateArgs&) noexcept;
  void (*delta_rule)(const DeltaRuleArgs&) noexcept;
  void (*mamba_rule)(const DeltaRuleArgs&) noexcept;
};

// Tables that this CPU can run, the scalar reference first, the fastest last.
std::vector<Isa> SupportedIsas();
// REQUIRES: one of SupportedIsas().
const KernelTable& KernelsFor(Isa isa);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_KERNELS_H_
