#include "kvasir/kv/score_rows.h"

#include <bit>
#include <cstring>

#include "kvasir/kv/row_codec.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"

namespace kvasir {
namespace {

// Four sums side by side: written out, because compilers vectorise the loops below over the wrong
// index. Products and sums are rounded one by one, so the bits are those of plain floats.
using Four = float __attribute__((vector_size(16)));

Four LoadFour(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof(four));
  return four;
}

// F16ToFloat without a branch or a call, which keep a loop from being vectorised.
float WidenF16(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFF) << 13;
  const uint32_t special = (bits & 0x7C00) == 0x7C00 ? 0x7F800000u : 0u;
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | special |
                              static_cast<uint32_t>(bits & 0x8000) << 16);
}

template <typename Stored, typename Widen>
void WidenPlane(const std::byte* plane, std::span<float> out, Widen widen) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, plane + i * sizeof(Stored), sizeof(stored));
    out[i] = widen(stored);
  }
}

// A dense key plane is a tile already.
void WidenKeys(KvCodec codec, const std::byte* plane, std::span<float> out) {
  if (codec.kind == KvCodec::Kind::kF32) {
    std::memcpy(out.data(), plane, out.size() * sizeof(float));
  } else if (codec.kind == KvCodec::Kind::kF16) {
    WidenPlane<uint16_t>(plane, out, WidenF16);
  } else {
    WidenPlane<uint16_t>(plane, out, Bf16ToFloat);
  }
}

}  // namespace

void RowReader::Key(int64_t row, std::span<float> key) {
  const KvLayout& layout = layer_.spec->layout;
  if (layout.key_codec.kind == KvCodec::Kind::kFromValue) {
    value_.resize(static_cast<size_t>(layout.kv_heads) * layout.value_dim);
    Value(row, value_);
    return DeriveKey(layer_.spec->derivation(), layer_.positions[row], value_, key);
  }
  DecodeKey(layout.BlockAt(row / kBlockTokens), layer_.blocks.block_of(row), row % kBlockTokens,
            key);
}

void RowReader::Value(int64_t row, std::span<float> value) const {
  DecodeValue(layer_.spec->layout.BlockAt(row / kBlockTokens), layer_.blocks.block_of(row),
              row % kBlockTokens, value);
}

KeyTile::KeyTile(const ScoredLayer& layer)
    : layer_(layer),
      reader_(layer),
      dim_(layer.spec->layout.key_dim),
      row_(layer.spec->layout.kv_heads * dim_) {
  keys_.resize(row_.size() * kBlockTokens);
}

void KeyTile::Load(int64_t block) {
  const int64_t rows = RowsIn(block);
  const KvCodec codec = layer_.spec->layout.BlockAt(block).key_codec;
  if (codec.is_dense()) {
    WidenKeys(codec, layer_.blocks.block(block), keys_);
  } else if (codec.is_packed()) {
    const KvBlockLayout layout = layer_.spec->layout.BlockAt(block);
    for (size_t head = 0; head < static_cast<size_t>(layout.kv_heads); ++head) {
      DecodePackedKeyPlane(codec, layer_.blocks.block(block) + head * layout.KeyHeadBytes(), dim_,
                           keys_.data() + head * static_cast<size_t>(dim_) * kBlockTokens);
    }
  } else {
    for (int64_t slot = 0; slot < rows; ++slot) {
      reader_.Key(block * kBlockTokens + slot, row_);
      for (size_t i = 0; i < row_.size(); ++i) keys_[i * kBlockTokens + slot] = row_[i];
    }
  }
  if (rows == kBlockTokens) return;
  for (size_t i = 0; i < row_.size(); ++i) {
    std::fill_n(keys_.begin() + static_cast<int64_t>(i) * kBlockTokens + rows, kBlockTokens - rows,
                0.0f);
  }
}

void KeyTile::Dot(int index, const float* vector, TileLanes& sums) const {
  sums.fill(0);
  const float* keys = head(index);
  for (int64_t d = 0; d < dim_; ++d, keys += kBlockTokens) {
    for (int t = 0; t < kBlockTokens; ++t) sums[t] += keys[t] * vector[d];
  }
}

void KeyTile::AddSquaredDots(int index, std::span<const float> vectors, TileLanes& sums) const {
  // 16 rows against 2 vectors: 8 sums of four stay in registers.
  const float* const keys = head(index);
  const int64_t count = static_cast<int64_t>(vectors.size()) / dim_;
  for (int64_t v = 0; v + 2 <= count; v += 2) {
    const float* const first = vectors.data() + v * dim_;
    const float* const second = first + dim_;
    for (int begin = 0; begin < kBlockTokens; begin += 16) {
      Four a[4] = {}, b[4] = {};
      for (int64_t d = 0; d < dim_; ++d) {
        const float* const line = keys + d * kBlockTokens + begin;
        for (int i = 0; i < 4; ++i) {
          const Four key = LoadFour(line + i * 4);
          a[i] += key * first[d];
          b[i] += key * second[d];
        }
      }
      for (int i = 0; i < 4; ++i) {
        const Four sum = LoadFour(&sums[begin + i * 4]) + (a[i] * a[i] + b[i] * b[i]);
        std::memcpy(&sums[begin + i * 4], &sum, sizeof(sum));
      }
    }
  }
}

void KeyTile::SquaredNorms(int index, TileLanes& sums) const {
  sums.fill(0);
  const float* keys = head(index);
  for (int64_t d = 0; d < dim_; ++d, keys += kBlockTokens) {
    for (int t = 0; t < kBlockTokens; ++t) sums[t] += keys[t] * keys[t];
  }
}

void Softmax(std::span<float> logits) {
  const float greatest = *std::max_element(logits.begin(), logits.end());
  for (float& x : logits) x = scalar::Exp(x - greatest);
  const float sum =
      LaneSum(static_cast<int64_t>(logits.size()), [&](int64_t i) { return logits[i]; });
  for (float& x : logits) x /= sum;
}

}  // namespace kvasir
