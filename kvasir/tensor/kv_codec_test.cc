#include "kvasir/tensor/kv_codec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir {
namespace {

using Kind = KvCodec::Kind;
using Scales = KvCodec::Scales;

TEST(KvCodec, NamesReadBack) {
  std::vector<KvCodec> codecs = {
      {.kind = Kind::kF32}, {.kind = Kind::kF16}, {.kind = Kind::kBf16}, {.kind = Kind::kFromValue},
      KvCodec::Turbo(2),    KvCodec::Turbo(3),    KvCodec::Turbo(4)};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const Scales scales : {Scales::kF16, Scales::kF32}) {
        for (const bool rotated : {false, true}) {
          codecs.push_back(KvCodec::Affine(bits, group, scales, rotated));
        }
      }
    }
  }
  for (const KvCodec& codec : codecs) {
    const Result<KvCodec> back = KvCodec::FromName(codec.name());
    ASSERT_TRUE(back.ok()) << codec.name();
    EXPECT_EQ(back.value(), codec) << codec.name();
  }
  EXPECT_EQ(KvCodec::Affine(4, 64).name(), "affine4:64");
  EXPECT_EQ(KvCodec::Affine(8, 32, Scales::kF32, true).name(), "affine8:32+f32+rot");
  EXPECT_EQ(KvCodec::Turbo(3).name(), "turbo3");
}

TEST(KvCodec, UnknownNamesAreRefusedWithTheForms) {
  for (const char* name :
       {"", "f64", "F16", "turbo", "turbo1", "turbo5", "turbo3.5", "turbo3x", "affine", "affine4",
        "affine4:", "affine7:64", "affine1:64", "affine-4:64", "affine4:16", "affine4:64+",
        "affine4:64+rot+f32", "affine4:64 ", "affine99999999999999999999:64"}) {
    const Result<KvCodec> codec = KvCodec::FromName(name);
    ASSERT_FALSE(codec.ok()) << name;
    EXPECT_NE(codec.error().message.find("affine<bits>:<group>"), std::string::npos);
  }
}

TEST(KvCodec, BytesOfAHead) {
  EXPECT_EQ((KvCodec{.kind = Kind::kF32}.HeadBytes(128)), 128u * 64 * 4);
  EXPECT_EQ((KvCodec{.kind = Kind::kBf16}.HeadBytes(80)), 80u * 64 * 2);
  EXPECT_EQ(KvCodec::Affine(4, 64).HeadBytes(128), 64u * (128 / 2 + 2 * 2 * 2));
  EXPECT_EQ(KvCodec::Affine(3, 32, Scales::kF32).HeadBytes(96), 64u * (96 * 3 / 8 + 3 * 2 * 4));
  EXPECT_EQ(KvCodec::Turbo(3).HeadBytes(128), 64u * (48 + 4));
  EXPECT_EQ((KvCodec{.kind = Kind::kFromValue}.HeadBytes(128)), 0u);
}

TEST(KvCodec, RefusesSizesThatCannotBeStored) {
  EXPECT_TRUE((KvCodec{.kind = Kind::kF16}.Validate(7).ok()));
  EXPECT_TRUE(KvCodec::Affine(4, 64).Validate(1024).ok());
  EXPECT_TRUE(KvCodec::Turbo(2).Validate(80).ok());
  EXPECT_TRUE(KvCodec::Turbo(2).Validate(512).ok());
  EXPECT_FALSE(KvCodec::Affine(4, 64).Validate(96).ok());
  EXPECT_FALSE(KvCodec::Turbo(2).Validate(72).ok());
  EXPECT_FALSE(KvCodec::Turbo(2).Validate(528).ok());
  EXPECT_FALSE(KvCodec::Affine(4, 64, Scales::kF16, true).Validate(1024).ok());
}

// Rotation and codebooks end at 512 and begin at 16, so nothing smaller may pass.
TEST(KvCodec, RefusesRowsWithoutElements) {
  for (const int64_t dim : {int64_t{0}, int64_t{-16}, int64_t{-64}}) {
    EXPECT_FALSE(KvCodec::Turbo(4).Validate(dim).ok()) << dim;
    EXPECT_FALSE(KvCodec::Affine(4, 64).Validate(dim).ok()) << dim;
  }
}

}  // namespace
}  // namespace kvasir
