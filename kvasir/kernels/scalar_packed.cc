// The oracle of packed cache formats: encode, scores and value sums as plain loops in exactly the
// order kernels.h states. Deliberately slow: it exists to be read and compared against.
#include <array>
#include <cmath>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/rotation.h"
#include "kvasir/tensor/turbo_codebooks.h"

namespace kvasir {
namespace {

// A plane's codes as numbers and its parameters, of either family: turbo is one group of all dims
// whose scale is the norm and whose bias is not used.
class PackedPlane {
 public:
  PackedPlane(const KvCodec& codec, const std::byte* plane, int64_t dim)
      : codec_(codec), plane_(plane), dim_(dim) {}

  bool affine() const { return codec_.kind == KvCodec::Kind::kAffine; }
  int64_t group() const { return affine() ? codec_.group : dim_; }
  float Level(uint32_t code) const {
    return affine() ? static_cast<float>(code) : TurboLevels(dim_, codec_.bits)[code];
  }
  float KeyLevel(int64_t d, int slot) const {
    return Level(LoadKeyCode(plane_, codec_.bits, d, slot));
  }
  float ValueLevel(int64_t d, int slot) const {
    return Level(LoadValueCode(plane_, codec_.bits, d, slot));
  }
  AffineGroup Parameters(int64_t g, int slot) const {
    if (affine()) return LoadAffineGroup(codec_, plane_, dim_, g, slot);
    return {LoadTurboNorm(codec_, plane_, dim_, slot), 0.0f};
  }

 private:
  KvCodec codec_;
  const std::byte* plane_;
  int64_t dim_;
};

void EncodePackedKeys(const EncodeArgs& args) noexcept {
  for (int64_t i = 0; i < args.count; ++i) {
    EncodePackedKeyRow(args.codec, args.plane, static_cast<int>(args.slot + i),
                       {args.rows + i * args.row_stride, static_cast<size_t>(args.dim)});
  }
}

void EncodePackedValues(const EncodeArgs& args) noexcept {
  for (int64_t i = 0; i < args.count; ++i) {
    EncodePackedValueRow(args.codec, args.plane, static_cast<int>(args.slot + i),
                         {args.rows + i * args.row_stride, static_cast<size_t>(args.dim)});
  }
}

float LaneSum(const float* x, int64_t count) {
  std::array<float, 16> lanes = {};
  for (int64_t i = 0; i < count; ++i) lanes[i % 16] += x[i];
  return scalar::SumLanes(lanes);
}

void ScorePacked(const ScoreTileArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.keys, args.key_dim);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* const q = args.queries + row * args.query_stride;
    for (int t = 0; t < kBlockTokens; ++t) {
      float score = 0;
      for (int64_t begin = 0; begin < args.key_dim; begin += plane.group()) {
        float part = 0;
        for (int64_t d = begin; d < begin + plane.group(); ++d) {
          part = std::fma(q[d], plane.KeyLevel(d, t), part);
        }
        const auto [scale, bias] = plane.Parameters(begin / plane.group(), t);
        if (!plane.affine()) {
          score = scale * part;
          continue;
        }
        score = std::fma(scale, part, score);
        score = std::fma(bias, LaneSum(q + begin, plane.group()), score);
      }
      args.scores[row * kBlockTokens + t] = score;
    }
  }
}

// One row's sums over the dims of one group.
void AccumulateGroup(const AccumulateTileArgs& args, const PackedPlane& plane, int64_t row,
                     int64_t begin) {
  std::array<float, kBlockTokens> u = {};
  std::array<float, 16> lanes = {};
  for (int t = 0; t < kBlockTokens; ++t) {
    const bool visible = t >= args.begin[row] && t < args.end[row];
    const float weight = visible ? args.weights[row * kBlockTokens + t] : 0.0f;
    const AffineGroup parameters =
        visible ? plane.Parameters(begin / plane.group(), t) : AffineGroup{};
    u[t] = weight * parameters.scale;
    lanes[t % 16] = std::fma(weight, parameters.bias, lanes[t % 16]);
  }
  const float shift = plane.affine() ? scalar::SumLanes(lanes) : 0.0f;
  for (int64_t d = begin; d < begin + plane.group(); ++d) {
    float& out = args.accumulator[row * args.accumulator_stride + d];
    float sum = out * args.rescale[row];
    for (int t = 0; t < kBlockTokens; ++t) sum = std::fma(u[t], plane.ValueLevel(d, t), sum);
    out = sum + shift;
  }
}

void AccumulatePacked(const AccumulateTileArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    for (int64_t begin = 0; begin < args.value_dim; begin += plane.group()) {
      AccumulateGroup(args, plane, row, begin);
    }
  }
}

void RotateRows(float* x, int64_t stride, int64_t rows, int64_t dim) noexcept {
  for (int64_t i = 0; i < rows; ++i) Rotate(x + i * stride, dim);
}

void RotateRowsBack(float* x, int64_t stride, int64_t rows, int64_t dim) noexcept {
  for (int64_t i = 0; i < rows; ++i) RotateBack(x + i * stride, dim);
}

}  // namespace

void FillScalarPacked(KernelTable* table) {
  for (size_t i = kFirstPackedFormat; i < kKvFormats; ++i) {
    table->kv[i] = {EncodePackedKeys, EncodePackedValues, ScorePacked, AccumulatePacked};
  }
  table->rotate = RotateRows;
  table->rotate_back = RotateRowsBack;
}

}  // namespace kvasir
