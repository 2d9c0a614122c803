#include "kvasir/kv/row_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kvasir/kv/kv_test_util.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using namespace kv_testing;

TEST(RowCodecTest, ElementsLieWhereTheLayoutSays) {
  const KvBlockLayout layout = {
      .kv_heads = 2, .key_dim = 3, .value_dim = 5, .key_codec = F32(), .value_codec = F16()};
  std::vector<std::byte> block(layout.BlockBytes());
  std::vector<float> key(6), value(10);
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<float>(i + 1);
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(100 + i);
  EncodeRow(layout, block.data(), 7, key, value);
  for (int head = 0; head < 2; ++head) {
    for (int d = 0; d < 3; ++d) {  // [kv_heads][key_dim][64]
      float stored;
      std::memcpy(&stored, block.data() + ((head * 3 + d) * 64 + 7) * 4, 4);
      EXPECT_EQ(stored, key[static_cast<size_t>(head * 3 + d)]);
    }
    for (int d = 0; d < 5; ++d) {  // [kv_heads][64][value_dim], after 2 * 3 * 64 floats
      uint16_t stored;
      std::memcpy(&stored, block.data() + 1536 + ((head * 64 + 7) * 5 + d) * 2, 2);
      EXPECT_EQ(F16ToFloat(stored), value[static_cast<size_t>(head * 5 + d)]);
    }
  }
}

class RowCodecTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(RowCodecTest, RoundsAsItsTypeAndTouchesNoOtherSlot) {
  const KvCodec keys = *KvCodec::FromName(std::get<0>(GetParam()));
  const KvCodec values = *KvCodec::FromName(std::get<1>(GetParam()));
  const auto rounded = [](KvCodec codec, float x) {
    if (codec == F16()) return F16ToFloat(FloatToF16(x));
    if (codec == Bf16()) return Bf16ToFloat(FloatToBf16(x));
    return x;
  };
  const KvBlockLayout layout = {
      .kv_heads = 1, .key_dim = 4, .value_dim = 4, .key_codec = keys, .value_codec = values};
  const std::vector<float> row = {0.1f, -3.14159265f, 65519.0f, 1e-7f};
  const std::vector<float> other = {1, 2, 3, 4};
  std::vector<std::byte> block(layout.BlockBytes(), std::byte{0xAB});
  for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
    EncodeRow(layout, block.data(), slot, other, other);
  }
  EncodeRow(layout, block.data(), 31, row, row);
  std::vector<float> key(4), value(4);
  for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
    DecodeKey(layout, block.data(), slot, key);
    DecodeValue(layout, block.data(), slot, value);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(key[i], slot == 31 ? rounded(keys, row[i]) : other[i]);
      EXPECT_EQ(value[i], slot == 31 ? rounded(values, row[i]) : other[i]);
    }
  }
}

TEST_P(RowCodecTest, KeepsInfinityAndNan) {
  const KvBlockLayout layout = {.kv_heads = 1,
                                .key_dim = 2,
                                .value_dim = 2,
                                .key_codec = *KvCodec::FromName(std::get<0>(GetParam())),
                                .value_codec = *KvCodec::FromName(std::get<1>(GetParam()))};
  const std::vector<float> row = {-std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::byte> block(layout.BlockBytes());
  EncodeRow(layout, block.data(), 0, row, row);
  std::vector<float> key(2), value(2);
  DecodeKey(layout, block.data(), 0, key);
  DecodeValue(layout, block.data(), 0, value);
  EXPECT_EQ(key[0], row[0]);
  EXPECT_EQ(value[0], row[0]);
  EXPECT_TRUE(std::isnan(key[1]) && std::isnan(value[1]));
}

INSTANTIATE_TEST_SUITE_P(Codecs, RowCodecTest,
                         testing::Combine(testing::Values("f32", "f16", "bf16"),
                                          testing::Values("f32", "f16", "bf16")));

// A row with a plausible spread of values.
std::vector<float> Row(size_t size, uint32_t seed) {
  std::vector<float> row;
  for (size_t i = 0; i < size; ++i) {
    seed = seed * 1664525u + 1013904223u;
    row.push_back(static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-30f);
  }
  return row;
}

TEST(RowCodecNormsTest, OneSumPerRowOfTheKeyAsGiven) {
  const KvBlockLayout layout = {.kv_heads = 2, .key_dim = 2, .value_dim = 1, .key_norms = true};
  std::vector<std::byte> block(layout.BlockBytes());
  EncodeRow(layout, block.data(), 5, std::vector<float>{3, 4, 0, 12}, std::vector<float>{1, 2});
  float norm;
  std::memcpy(&norm, block.data() + layout.NormsOffset() + 5 * 4, 4);
  EXPECT_EQ(norm, 17);
}

// A row copied to another slot of another block reads the same, for every codec; between codecs it
// is decoded and encoded.
TEST(RowCodecCopyTest, CopiesBitsOrConverts) {
  const char* const names[] = {"f32",        "f16",        "bf16",           "affine2:32",
                               "affine3:64", "affine8:32", "affine5:64+f32", "affine4:64+rot",
                               "turbo2",     "turbo3",     "turbo4"};
  for (const char* from_name : names) {
    for (const char* to_name : names) {
      SCOPED_TRACE(std::string(from_name) + " to " + to_name);
      const auto layout_of = [](const char* name) {
        return KvBlockLayout{.kv_heads = 2,
                             .key_dim = 64,
                             .value_dim = 128,
                             .key_codec = *KvCodec::FromName(name),
                             .value_codec = *KvCodec::FromName(name),
                             .key_norms = true};
      };
      const KvBlockLayout from = layout_of(from_name);
      const KvBlockLayout to = layout_of(to_name);
      std::vector<std::byte> source(from.BlockBytes());
      std::vector<std::byte> copied(to.BlockBytes(), std::byte{0x5A});
      std::vector<std::byte> encoded(to.BlockBytes(), std::byte{0x5A});
      EncodeRow(from, source.data(), 9, Row(128, 1), Row(256, 2));
      std::vector<float> key(128), value(256);
      DecodeKey(from, source.data(), 9, key);
      DecodeValue(from, source.data(), 9, value);
      CopyRow(from, source.data(), 9, to, copied.data(), 40);
      if (from.key_codec == to.key_codec) {
        std::vector<float> key_read(128), value_read(256);
        DecodeKey(to, copied.data(), 40, key_read);
        DecodeValue(to, copied.data(), 40, value_read);
        EXPECT_EQ(key_read, key);
        EXPECT_EQ(value_read, value);
        EncodeRow(to, encoded.data(), 40, Row(128, 1), Row(256, 2));
      } else {
        EncodeRow(to, encoded.data(), 40, key, value);
      }
      // Norms travel as they are; everything else is what encoding there gives.
      std::memcpy(encoded.data() + to.NormsOffset() + 40 * 4,
                  source.data() + from.NormsOffset() + 9 * 4, 4);
      EXPECT_EQ(copied, encoded);
    }
  }
}

TEST(RowCodecDeriveTest, KeysComeFromValues) {
  KvLayerSpec spec = Layer(RetentionSpec::All(), *KvCodec::FromName("from-value"));
  spec.layout.kv_heads = 1;
  spec.layout.key_dim = 4;
  spec.layout.value_dim = 4;
  spec.key_norm = {1, 2, 1, 0.5f};
  spec.inv_freq = {1, 0.25f};
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({spec})));
  EXPECT_EQ(spec.layout.BlockAt(0).BlockBytes(), 64u * 4 * 4);  // one of the two
  MustOk(sequence.Reserve(3));
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, -1, 0.5f, 2, 3};
  sequence.WriteRows(0, 0, {values, values});
  for (int position = 0; position < 3; ++position) {
    const float* v = &values[static_cast<size_t>(position) * 4];
    const std::vector<float> key = sequence.ReadKeys(0, position);
    for (int pair = 0; pair < 2; ++pair) {
      const double angle = position * static_cast<double>(spec.inv_freq[static_cast<size_t>(pair)]);
      const double x = v[pair] * spec.key_norm[static_cast<size_t>(pair)];
      const double y = v[pair + 2] * spec.key_norm[static_cast<size_t>(pair) + 2];
      // A few roundings of numbers below 16.
      EXPECT_NEAR(key[static_cast<size_t>(pair)], x * std::cos(angle) - y * std::sin(angle), 4e-6);
      EXPECT_NEAR(key[static_cast<size_t>(pair) + 2], x * std::sin(angle) + y * std::cos(angle),
                  4e-6);
    }
  }
}

}  // namespace
}  // namespace kvasir
