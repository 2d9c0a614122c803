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

}  // namespace
}  // namespace kvasir
