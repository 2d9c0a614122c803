#include "kvasir/kv/kv_spec.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

std::string ErrorOf(const KvCacheSpec& spec) {
  const Status status = spec.Validate();
  if (status.ok()) return "ok";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

KvLayerSpec Sharing(KvLayerSpec layer, int of) {
  layer.shares_layer = of;
  return layer;
}

TEST(KvSpecTest, ErrorsNameLayerAndField) {
  const KvLayerSpec all = Layer(RetentionSpec::All());
  EXPECT_EQ(ErrorOf({{all, Sharing(all, 0)}}), "ok");
  EXPECT_NE(ErrorOf({}).find("no layers"), std::string::npos);
  KvCacheSpec spec{{all, all}};
  spec.layers[1].layout.kv_heads = 0;
  EXPECT_NE(ErrorOf(spec).find("layer 1: kv_heads is 0"), std::string::npos);
  spec = {{all, all}};
  spec.layers[0].layout.key_dim = -4;
  EXPECT_NE(ErrorOf(spec).find("layer 0: key_dim is -4"), std::string::npos);
  spec = {{all, all}};
  spec.layers[1].layout.value_dim = 1 << 30;
  EXPECT_NE(ErrorOf(spec).find("layer 1: value_dim"), std::string::npos);
  spec = {{all, Layer(RetentionSpec::Window(0))}};
  EXPECT_NE(ErrorOf(spec).find("layer 1: retention 'window:0'"), std::string::npos);
}

TEST(KvSpecTest, SharingNeedsAnEarlierOwnerOfTheSameKind) {
  const KvLayerSpec all = Layer(RetentionSpec::All());
  const KvLayerSpec window = Layer(RetentionSpec::Window(8));
  EXPECT_NE(ErrorOf({{Sharing(all, 0)}}).find("shares_layer is 0"), std::string::npos);
  EXPECT_NE(ErrorOf({{all, Sharing(all, 2), all}}).find("earlier"), std::string::npos);
  EXPECT_NE(ErrorOf({{all, Sharing(all, 0), Sharing(all, 1)}}).find("layer 2"), std::string::npos);
  EXPECT_NE(ErrorOf({{all, Sharing(window, 0)}}).find("same layout and retention"),
            std::string::npos);
  EXPECT_NE(ErrorOf({{all, Sharing(Layer(RetentionSpec::All(), F16()), 0)}}).find("same layout"),
            std::string::npos);
}

TEST(KvSpecTest, TokenBytesCountsOwnRowsOnly) {
  // 2 heads * (4 keys * 4 bytes + 3 values * 2 bytes)
  const KvLayerSpec layer = Layer(RetentionSpec::All(), F32(), F16());
  EXPECT_EQ(KvCacheSpec::Uniform(3, layer).TokenBytes(), 3u * 44);
  EXPECT_EQ((KvCacheSpec{{layer, Sharing(layer, 0)}}).TokenBytes(), 44u);
}

TEST(KvSpecTest, WhatDoesNotGoTogetherIsNamed) {
  const auto budget = [](const char* name) { return Layer(*RetentionSpec::FromName(name)); };
  const char* const automatic = "budget:128,recent=64,interval=64,score=tova";
  KvLayerSpec layer = budget(automatic);
  layer.layout.query_floats = 8;
  layer.layout.observed_block = 2;
  EXPECT_EQ(ErrorOf({{layer}}), "ok");
  layer.layout.observed_block = 1;
  EXPECT_NE(ErrorOf({{layer}}).find("observed_block 2"), std::string::npos);
  layer.retention = RetentionSpec::All();
  EXPECT_NE(ErrorOf({{layer}}).find("query_floats"), std::string::npos);
  layer.layout.query_floats = -8;
  EXPECT_NE(ErrorOf({{layer}}).find("query_floats is -8"), std::string::npos);

  layer = budget(automatic);
  layer.layout.dense_recent = 128;
  EXPECT_NE(ErrorOf({{layer}}).find("recent at least dense_recent"), std::string::npos);
  layer = budget("budget:100,recent=64");
  layer.layout.dense_recent = 64;
  EXPECT_NE(ErrorOf({{layer}}).find("multiple of 64"), std::string::npos);
  EXPECT_NE(ErrorOf({{budget("budget:100"), budget("budget:101")}}).find("layer 1: its budget"),
            std::string::npos);
  EXPECT_EQ(ErrorOf({{budget("budget:100,per-layer"), budget("budget:101")}}), "ok");
  EXPECT_NE(ErrorOf({{budget("budget:9,score=expected-attention")}}).find("inv_freq"),
            std::string::npos);

  layer = Layer(RetentionSpec::All());
  layer.inv_freq = {1, 2, 3};
  EXPECT_NE(ErrorOf({{layer}}).find("inv_freq has 3"), std::string::npos);
  layer = Layer(RetentionSpec::All(), *KvCodec::FromName("from-value"));
  EXPECT_NE(ErrorOf({{layer}}).find("key_norm has 0"), std::string::npos);
  layer.key_norm = {1, 1, 1, 1};
  layer.inv_freq = {1, 0.5f};
  EXPECT_NE(ErrorOf({{layer}}).find("key_dim equal to value_dim"), std::string::npos);
  layer.layout.value_dim = 4;
  EXPECT_EQ(ErrorOf({{layer}}), "ok");

  EXPECT_EQ(ErrorOf({{Recurrent(100)}}), "ok");
  EXPECT_NE(ErrorOf({{Recurrent(size_t{1} << 41)}}).find("state_bytes"), std::string::npos);
  layer = Layer(RetentionSpec::All());
  layer.state_bytes = 8;
  EXPECT_NE(ErrorOf({{layer}}).find("has no rows"), std::string::npos);
  EXPECT_NE(
      ErrorOf({{Recurrent(8), Sharing(Layer(RetentionSpec::All()), 0)}}).find("earlier layer"),
      std::string::npos);
}

TEST(KvSpecTest, BytesAtIsWhatASequenceHolds) {
  KvPool pool(Budget(kAmpleBytes));
  const KvLayerSpec all = Layer(RetentionSpec::All(), F16(), F16());
  KvLayerSpec packed = Layer(RetentionSpec::Window(200, 70));
  packed.layout.key_dim = 32;
  packed.layout.key_codec = KvCodec::Affine(4, 32);
  packed.layout.dense_start = 64;
  KvLayerSpec evicting =
      Layer(*RetentionSpec::FromName("budget:128,recent=64,interval=64,score=streaming"));
  evicting.layout.dense_recent = 64;
  evicting.layout.key_norms = true;
  const auto spec =
      Spec({all, Layer(RetentionSpec::Window(100)), Sharing(all, 0),
            Layer(RetentionSpec::Chunk(70), Bf16()), packed, evicting, Recurrent(192)});
  auto sequence = Must(KvSequence::Create(&pool, spec));
  EXPECT_EQ(spec->BytesAt(0), 0u);
  for (Position position = 1; position < 600; ++position) {
    MustOk(Append(sequence, Tokens(static_cast<Token>(position), 1)));
    ASSERT_EQ(spec->BytesAt(position), sequence.nbytes()) << position;
  }
}

}  // namespace
}  // namespace kvasir
