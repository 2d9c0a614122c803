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

TEST(KvSpecTest, BytesAtIsWhatASequenceHolds) {
  KvPool pool(Budget(kAmpleBytes));
  const KvLayerSpec all = Layer(RetentionSpec::All(), F16(), F16());
  const auto spec = Spec({all, Layer(RetentionSpec::Window(100)), Sharing(all, 0),
                          Layer(RetentionSpec::Chunk(70), Bf16())});
  auto sequence = Must(KvSequence::Create(&pool, spec));
  EXPECT_EQ(spec->BytesAt(0), 0u);
  for (Position position = 1; position < 400; ++position) {
    MustOk(sequence.Reserve(1));
    sequence.Advance(1);
    ASSERT_EQ(spec->BytesAt(position), sequence.nbytes()) << position;
  }
}

}  // namespace
}  // namespace kvasir
