#include "kvasir/tensor/packed_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/rotation.h"
#include "kvasir/tensor/turbo_codec.h"

namespace kvasir {
namespace {

using Scales = KvCodec::Scales;

std::vector<KvCodec> AllCodecs() {
  std::vector<KvCodec> codecs;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const Scales scales : {Scales::kF16, Scales::kF32}) {
        for (const bool rotated : {false, true}) {
          codecs.push_back(KvCodec::Affine(bits, group, scales, rotated));
        }
      }
    }
  }
  for (const int bits : {2, 3, 4}) codecs.push_back(KvCodec::Turbo(bits));
  return codecs;
}

// One side of a block, so that every test runs for keys and for values.
struct Side {
  decltype(&EncodePackedKeyRow) encode;
  decltype(&DecodePackedKeyRow) decode;
  decltype(&LoadPackedKeyRow) load;
  decltype(&LoadKeyCode) code;
};
const Side kSides[] = {
    {EncodePackedKeyRow, DecodePackedKeyRow, LoadPackedKeyRow, LoadKeyCode},
    {EncodePackedValueRow, DecodePackedValueRow, LoadPackedValueRow, LoadValueCode}};

std::vector<float> RandomRow(int64_t dim, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<size_t>(dim));
  for (float& value : row) value = normal(random);
  return row;
}

std::vector<uint32_t> Bits(const std::vector<float>& x) {
  std::vector<uint32_t> bits;
  for (const float value : x) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::vector<uint8_t> CodesOf(const Side& side, const KvCodec& codec, const std::byte* plane,
                             int64_t dim, int slot) {
  std::vector<uint8_t> codes;
  for (int64_t d = 0; d < dim; ++d) {
    codes.push_back(static_cast<uint8_t>(side.code(plane, codec.bits, d, slot)));
  }
  return codes;
}

TEST(PackedCodec, RowsComeBackWithinTheCodecsError) {
  std::mt19937 random(8);
  constexpr int64_t kDim = 128;
  for (const KvCodec& codec : AllCodecs()) {
    // Panter-Dite's 2.72 * 4^-bits bounds turbo; min-max over 128 is at most 2.4 times that.
    const double limit = 6.6 * std::pow(4.0, -codec.bits);
    for (const Side& side : kSides) {
      std::vector<std::byte> plane(codec.HeadBytes(kDim));
      const std::vector<float> row = RandomRow(kDim, random);
      side.encode(codec, plane.data(), 37, row);
      std::vector<float> back(kDim);
      side.decode(codec, plane.data(), 37, back);
      double error = 0;
      double norm = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        error += std::pow(static_cast<double>(back[i]) - row[i], 2);
        norm += static_cast<double>(row[i]) * row[i];
      }
      EXPECT_LT(error / norm, limit) << codec.name();
      EXPECT_GT(error, 0) << codec.name();
    }
  }
}

TEST(PackedCodec, CodesAndParametersLieWhereTheLayoutSays) {
  std::mt19937 random(9);
  constexpr int64_t kDim = 128;
  constexpr int kSlot = 45;
  for (const KvCodec& codec : AllCodecs()) {
    for (const Side& side : kSides) {
      std::vector<std::byte> plane(codec.HeadBytes(kDim));
      std::vector<float> row = RandomRow(kDim, random);
      side.encode(codec, plane.data(), kSlot, row);
      std::vector<uint8_t> codes(kDim);
      const std::byte* parameters = plane.data() + codec.CodeBytes(kDim);
      if (codec.kind == KvCodec::Kind::kTurbo) {
        const float norm = EncodeTurbo(row, codec.bits, codes.data());
        EXPECT_EQ(std::memcmp(parameters + kSlot * 4, &norm, 4), 0);
      } else {
        if (codec.rotated) Rotate(row.data(), kDim);
        const size_t groups = kDim / codec.group;
        for (size_t g = 0; g < groups; ++g) {
          const AffineGroup group =
              QuantizeAffineGroup(std::span(row).subspan(g * codec.group, codec.group), codec.bits,
                                  codec.scales, codes.data() + g * codec.group);
          const size_t scale_index = g * 64 + kSlot;
          const size_t bias_index = (groups + g) * 64 + kSlot;
          if (codec.scales == Scales::kF32) {
            EXPECT_EQ(std::memcmp(parameters + scale_index * 4, &group.scale, 4), 0);
            EXPECT_EQ(std::memcmp(parameters + bias_index * 4, &group.bias, 4), 0);
          } else {
            const uint16_t scale = SaturatingF16(group.scale);
            const uint16_t bias = SaturatingF16(group.bias);
            EXPECT_EQ(std::memcmp(parameters + scale_index * 2, &scale, 2), 0);
            EXPECT_EQ(std::memcmp(parameters + bias_index * 2, &bias, 2), 0);
          }
        }
      }
      EXPECT_EQ(CodesOf(side, codec, plane.data(), kDim, kSlot), codes) << codec.name();
    }
  }
}

TEST(PackedCodec, AnyOrderOfRowsGivesTheSameBytes) {
  std::mt19937 random(10);
  constexpr int64_t kDim = 128;
  for (const KvCodec& codec : AllCodecs()) {
    std::vector<std::vector<float>> rows;
    std::vector<int> order;
    for (int slot = 0; slot < kBlockTokens; ++slot) {
      rows.push_back(RandomRow(kDim, random));
      order.push_back(slot);
    }
    for (const Side& side : kSides) {
      std::vector<std::byte> forward(codec.HeadBytes(kDim));
      // Every byte is overwritten: what was there before does not matter.
      std::vector<std::byte> shuffled(codec.HeadBytes(kDim), std::byte{0xC3});
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        side.encode(codec, forward.data(), slot, rows[static_cast<size_t>(slot)]);
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const int slot : order) {
        side.encode(codec, shuffled.data(), slot, rows[static_cast<size_t>(slot)]);
      }
      EXPECT_EQ(forward, shuffled) << codec.name();
    }
  }
}

TEST(PackedCodec, AWholePlaneDecodesAsItsRows) {
  std::mt19937 random(12);
  for (const int64_t dim : {64, 128, 192}) {
    for (const KvCodec& codec : AllCodecs()) {
      if (!codec.Validate(dim).ok()) continue;
      std::vector<std::byte> plane(codec.HeadBytes(dim));
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        EncodePackedKeyRow(codec, plane.data(), slot, RandomRow(dim, random));
      }
      std::vector<float> tile(static_cast<size_t>(dim) * kBlockTokens);
      DecodePackedKeyPlane(codec, plane.data(), dim, tile.data());
      std::vector<float> row(static_cast<size_t>(dim));
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        DecodePackedKeyRow(codec, plane.data(), slot, row);
        for (int64_t d = 0; d < dim; ++d) {
          ASSERT_EQ(tile[static_cast<size_t>(d * kBlockTokens + slot)], row[static_cast<size_t>(d)])
              << codec.name() << ", dim " << d << " of " << dim << ", slot " << slot;
        }
      }
    }
  }
}

TEST(PackedCodec, OtherRowsStayAsTheyAre) {
  std::mt19937 random(11);
  constexpr int64_t kDim = 128;
  for (const KvCodec& codec : AllCodecs()) {
    for (const Side& side : kSides) {
      std::vector<std::byte> plane(codec.HeadBytes(kDim));
      std::vector<std::vector<uint32_t>> before;
      std::vector<float> row(kDim);
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        side.encode(codec, plane.data(), slot, RandomRow(kDim, random));
        side.load(codec, plane.data(), slot, row);
        before.push_back(Bits(row));
      }
      side.encode(codec, plane.data(), 16, RandomRow(kDim, random));
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        side.load(codec, plane.data(), slot, row);
        EXPECT_EQ(Bits(row) == before[static_cast<size_t>(slot)], slot != 16) << codec.name();
      }
    }
  }
}

TEST(PackedCodec, TurboSizesThatArePowersOfNothing) {
  std::mt19937 random(12);
  for (const int64_t dim : {16, 80, 96, 176, 192, 496}) {
    const KvCodec codec = KvCodec::Turbo(4);
    std::vector<std::byte> plane(codec.HeadBytes(dim));
    const std::vector<float> row = RandomRow(dim, random);
    for (const Side& side : kSides) {
      side.encode(codec, plane.data(), 63, row);
      std::vector<float> back(row.size());
      side.decode(codec, plane.data(), 63, back);
      // The expected error is 0.1 of a standard deviation; six of those.
      for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(back[i], row[i], 0.6) << dim;
    }
  }
}

// A tensor of the trace format, flat.
std::vector<float> Floats(const Json& json) {
  std::vector<float> data;
  for (const Json& x : json.Find("data")->as_array()) {
    data.push_back(static_cast<float>(x.as_double()));
  }
  return data;
}

std::vector<float> LastOf(const Json& json, size_t count) {
  const std::vector<float> all = Floats(json);
  return {all.end() - static_cast<ptrdiff_t>(count), all.end()};
}

// Rows that one append of a trace stored on one side, and what MLX made of them.
struct RecordedRows {
  KvCodec codec;
  size_t dim = 0;
  std::vector<float> rows;
  std::vector<float> decoded;
  std::vector<uint32_t> words;
  std::vector<float> scales;
  std::vector<float> biases;
};

void AppendRecorded(const Json& spec, const Json& op, const char* side,
                    std::vector<RecordedRows>& out) {
  const Json& codec = *spec.Find(side);
  if (codec.Find("codec")->as_string() != "affine" || op.Find("op")->as_string() != "append") {
    return;
  }
  for (const auto& [id, appended] : op.Find("seqs")->as_object()) {
    const Json& expect = *op.Find("expect")->Find("seqs")->Find(id);
    const Json& packed = *expect.Find("packed")->Find(side);
    RecordedRows recorded;
    recorded.codec = KvCodec::Affine(static_cast<int>(codec.Find("bits")->as_int()),
                                     static_cast<int>(codec.Find("group")->as_int()), Scales::kF32);
    recorded.dim = static_cast<size_t>(appended.Find(side)->Find("shape")->as_array()[2].as_int());
    recorded.rows = Floats(*appended.Find(side));
    const size_t count = recorded.rows.size();
    recorded.decoded = LastOf(*expect.Find(side), count);
    recorded.scales = LastOf(*packed.Find("scales"), count / recorded.codec.group);
    recorded.biases = LastOf(*packed.Find("biases"), count / recorded.codec.group);
    const auto& words = packed.Find("words")->Find("data")->as_array();
    for (size_t i = words.size() - count * recorded.codec.bits / 32; i < words.size(); ++i) {
      recorded.words.push_back(static_cast<uint32_t>(words[i].as_int()));
    }
    out.push_back(std::move(recorded));
  }
}

std::vector<RecordedRows> Recorded(const std::string& path, const char* side) {
  Result<Json> trace = Json::ParseFile(path);
  std::vector<RecordedRows> out;
  EXPECT_TRUE(trace.ok());
  if (!trace.ok()) return out;
  for (const Json& op : trace.value().Find("ops")->as_array()) {
    AppendRecorded(*trace.value().Find("spec"), op, side, out);
  }
  return out;
}

// Stores the rows and compares all that can be read back, bit for bit.
void ExpectMlxBits(const RecordedRows& recorded, const Side& side) {
  const KvCodec& codec = recorded.codec;
  const auto dim = static_cast<int64_t>(recorded.dim);
  std::vector<std::byte> plane(codec.HeadBytes(dim));
  std::vector<float> decoded, scales, biases;
  std::vector<uint32_t> words;
  for (size_t i = 0; i < recorded.rows.size(); i += recorded.dim) {
    const int slot = static_cast<int>(i / recorded.dim) % kBlockTokens;
    side.encode(codec, plane.data(), slot, std::span(recorded.rows).subspan(i, recorded.dim));
    std::vector<float> row(recorded.dim);
    side.decode(codec, plane.data(), slot, row);
    decoded.insert(decoded.end(), row.begin(), row.end());
    std::vector<uint32_t> row_words(static_cast<size_t>(RowWords(dim, codec.bits)));
    PackRow(CodesOf(side, codec, plane.data(), dim, slot), codec.bits, row_words.data());
    words.insert(words.end(), row_words.begin(), row_words.end());
    for (int64_t g = 0; g < dim / codec.group; ++g) {
      const AffineGroup group = LoadAffineGroup(codec, plane.data(), dim, g, slot);
      scales.push_back(group.scale);
      biases.push_back(group.bias);
    }
  }
  EXPECT_EQ(words, recorded.words);
  EXPECT_EQ(Bits(scales), Bits(recorded.scales));
  EXPECT_EQ(Bits(biases), Bits(recorded.biases));
  EXPECT_EQ(Bits(decoded), Bits(recorded.decoded));
}

TEST(PackedCodec, AffineIsMlxBitForBit) {
  int files = 0;
  size_t rows = 0;
  const std::string folder = std::string(KVASIR_SOURCE_DIR) + "/testdata/traces";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("affine")) continue;
    const std::string path = entry.path().string();
    SCOPED_TRACE(path);
    ++files;
    for (const RecordedRows& recorded : Recorded(path, "keys")) {
      ExpectMlxBits(recorded, kSides[0]);
      rows += recorded.rows.size() / recorded.dim;
    }
    for (const RecordedRows& recorded : Recorded(path, "values")) {
      ExpectMlxBits(recorded, kSides[1]);
      rows += recorded.rows.size() / recorded.dim;
    }
  }
  EXPECT_GE(files, 9);
  EXPECT_GE(rows, 150u);
}

}  // namespace
}  // namespace kvasir
