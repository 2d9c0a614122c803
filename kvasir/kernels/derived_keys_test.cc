// Derived keys have the definition's bits with every instruction set.
#include "kvasir/kernels/derived_keys.h"

#include <array>
#include <cstring>

#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"

namespace kvasir {
namespace {

using testing::kNan;
using testing::RandomFloats;

// A value plane [64][dim] in a dense codec.
std::vector<std::byte> DensePlane(KvCodec::Kind kind, const std::vector<float>& values) {
  const size_t size = kind == KvCodec::Kind::kF32 ? 4 : 2;
  std::vector<std::byte> plane(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half =
        kind == KvCodec::Kind::kF16 ? FloatToF16(values[i]) : FloatToBf16(values[i]);
    if (size == 4) std::memcpy(&plane[4 * i], &values[i], 4);
    if (size == 2) std::memcpy(&plane[2 * i], &half, 2);
  }
  return plane;
}

void ExpectTheDefinition(const DeriveKeysArgs& given, size_t dim) {
  std::vector<float> tile(dim * kBlockTokens, -1.0f);
  DeriveKeyTile(given.derivation, *given.layout, given.values, given.positions, given.begin,
                given.end, tile.data());
  for (const KvCodec::Kind kind : {KvCodec::Kind::kF32, KvCodec::Kind::kF16}) {
    const std::vector<std::byte> wanted = DensePlane(kind, tile);
    for (const Isa isa : SupportedIsas()) {
      AlignedVector<float> turns(KeyTurnFloats(given.derivation), kNan);
      MakeKeyTurns(isa, given.derivation, given.positions, turns.data());
      AlignedVector<std::byte> out(wanted.size(), std::byte{0xFF});
      DeriveKeysArgs args = given;
      args.turns = turns.data();
      args.codec = {kind};
      args.out = out.data();
      DeriveKeys(isa, args);
      ASSERT_EQ(std::memcmp(out.data(), wanted.data(), out.size()), 0)
          << IsaName(isa) << " dim " << dim << " slots " << given.begin << " to " << given.end;
    }
  }
}

// Rows of some dimensions with what keys are derived by.
struct Rows {
  explicit Rows(int dim)
      : dim(dim),
        values(RandomFloats(static_cast<size_t>(dim) * kBlockTokens, 1)),
        norm(RandomFloats(static_cast<size_t>(dim), 2)),
        frequencies(static_cast<size_t>(dim) / 2) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
      // As Gemma 4 has it: only the first quarter turns.
      frequencies[i] = i % 8 < 5
                           ? std::pow(1e6f, -2.0f * static_cast<float>(i) / static_cast<float>(dim))
                           : 0.0f;
    }
  }
  // `plane`: the values in `codec`. At many positions, for many ranges of slots.
  void ExpectTheDefinitionOf(KvCodec codec, const std::vector<std::byte>& plane) const {
    KvBlockLayout layout;
    layout.kv_heads = 1;
    layout.key_dim = layout.value_dim = dim;
    layout.key_codec = {KvCodec::Kind::kFromValue};
    layout.value_codec = codec;
    for (const Position first : {Position{0}, Position{64}, Position{130'000}, Position{1} << 29}) {
      std::array<Position, kBlockTokens> positions;
      for (size_t i = 0; i < positions.size(); ++i) {
        positions[i] = first + static_cast<Position>(i * (i % 3 == 0 ? 7 : 1));
      }
      for (const auto& [begin, end] : {std::pair{0, 64}, {0, 1}, {13, 50}, {63, 64}, {7, 7}}) {
        ExpectTheDefinition({.derivation = {norm, frequencies},
                             .layout = &layout,
                             .values = plane.data(),
                             .positions = positions,
                             .begin = begin,
                             .end = end},
                            static_cast<size_t>(dim));
      }
    }
  }

  int dim;
  std::vector<float> values;  // [64, dim]
  std::vector<float> norm;
  std::vector<float> frequencies;
};

TEST(DerivedKeys, HaveTheDefinitionsBits) {
  for (const int dim : {2, 16, 24, 32, 64, 512}) {
    const Rows rows(dim);
    for (const KvCodec::Kind kind :
         {KvCodec::Kind::kF32, KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
      rows.ExpectTheDefinitionOf({kind}, DensePlane(kind, rows.values));
    }
  }
}

// As of latents: a few pairs turn, and nothing is scaled but those.
TEST(DerivedKeys, HaveTheDefinitionsBitsWhereMostPairsAreStill) {
  for (const int dim : {40, 48, 576}) {
    Rows rows(dim);
    const size_t pairs = rows.frequencies.size();
    for (size_t i = 0; i < pairs; ++i) {
      if (i >= 5) rows.frequencies[i] = 0;
      if (i >= 3) rows.norm[i] = rows.norm[i + pairs] = 1;
    }
    rows.norm[pairs + 18] = 2;  // one of a group that is else as it is
    for (const KvCodec::Kind kind :
         {KvCodec::Kind::kF32, KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
      rows.ExpectTheDefinitionOf({kind}, DensePlane(kind, rows.values));
    }
  }
}

TEST(DerivedKeys, HaveTheDefinitionsBitsFromEveryPackedCodec) {
  std::vector<KvCodec> codecs = {KvCodec::Turbo(2), KvCodec::Turbo(3), KvCodec::Turbo(4)};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    codecs.push_back(KvCodec::Affine(bits, 32));
    codecs.push_back(KvCodec::Affine(bits, 64, KvCodec::Scales::kF32));
    codecs.push_back(KvCodec::Affine(bits, 64, KvCodec::Scales::kF16, true));
  }
  for (const int dim : {16, 48, 64, 96, 256, 512}) {
    const Rows rows(dim);
    for (const KvCodec& codec : codecs) {
      if (!codec.Validate(dim).ok()) continue;
      SCOPED_TRACE(codec.name());
      std::vector<std::byte> plane(codec.HeadBytes(dim));
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        EncodePackedValueRow(
            codec, plane.data(), slot,
            std::span(rows.values)
                .subspan(static_cast<size_t>(slot) * rows.norm.size(), rows.norm.size()));
      }
      rows.ExpectTheDefinitionOf(codec, plane);
    }
  }
}

}  // namespace
}  // namespace kvasir
