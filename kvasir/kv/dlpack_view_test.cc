// DLPack tensors of rows, read as a consumer reads them: data, offset, shape and strides.
#include "kvasir/kv/dlpack_view.h"

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "kvasir/kv/kv_test_util.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using namespace kv_testing;  // NOLINT: the words of these tests

using Tensor = std::unique_ptr<DLManagedTensor, void (*)(DLManagedTensor*)>;

Tensor Owned(Result<DLManagedTensor*> tensor) {
  return {Must(std::move(tensor)), [](DLManagedTensor* self) { self->deleter(self); }};
}

// Element [i, j, k] as a consumer finds it.
float At(const DLTensor& tensor, int64_t i, int64_t j, int64_t k) {
  const int64_t index = i * tensor.strides[0] + j * tensor.strides[1] + k * tensor.strides[2];
  const auto* bytes = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  if (tensor.dtype.bits == 32) {
    float value;
    std::memcpy(&value, bytes + index * 4, 4);
    return value;
  }
  uint16_t value;
  std::memcpy(&value, bytes + index * 2, 2);
  return tensor.dtype.code == kDLBfloat ? Bf16ToFloat(value) : F16ToFloat(value);
}

struct Codecs {
  KvCodec keys;
  KvCodec values;
};

class DlpackBlockTest : public testing::TestWithParam<Codecs> {};

TEST_P(DlpackBlockTest, ShowsTheRowsOfABlockInPlace) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = Spec({Layer(RetentionSpec::All(), GetParam().keys, GetParam().values)});
  KvSequence sequence = Must(KvSequence::Create(&pool, spec));
  const std::vector<Token> tokens = Tokens(0, 100);
  MustOk(Append(sequence, tokens));
  const KvRows expected = RowsOf(spec->layers[0].layout, 0, tokens);
  for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
    const bool keys = part == KvPart::kKeys;
    const int64_t dim = keys ? 4 : 3;
    const Tensor managed = Owned(DlpackBlock(sequence, {0, part, nullptr}, 1));
    const DLTensor& tensor = managed->dl_tensor;
    EXPECT_EQ(tensor.device.device_type, kDLCPU);
    EXPECT_EQ(tensor.data, sequence.Blocks(0).block(1));
    ASSERT_EQ(tensor.ndim, 3);
    EXPECT_EQ(tensor.shape[0], 2);
    EXPECT_EQ(tensor.shape[1], 36);
    EXPECT_EQ(tensor.shape[2], dim);
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t row = 0; row < 36; ++row) {
        for (int64_t d = 0; d < dim; ++d) {
          const auto index = static_cast<size_t>(((64 + row) * 2 + head) * dim + d);
          ASSERT_EQ(At(tensor, head, row, d), (keys ? expected.keys : expected.values)[index]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryDenseCodec, DlpackBlockTest,
                         testing::Values(Codecs{F32(), F16()}, Codecs{F16(), Bf16()},
                                         Codecs{Bf16(), F32()}));

TEST(DlpackViewTest, ATensorOutlivesItsSequenceAndKeepsItsBlockAsItIs) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = Spec({Layer(RetentionSpec::All())});
  auto sequence = std::make_unique<KvSequence>(Must(KvSequence::Create(&pool, spec)));
  MustOk(Append(*sequence, Tokens(0, 10)));
  Tensor tensor = Owned(DlpackBlock(*sequence, {0, KvPart::kKeys, nullptr}, 0));
  const float before = At(tensor->dl_tensor, 1, 9, 3);
  MustOk(sequence->Trim(1).status());
  MustOk(Append(*sequence, Tokens(5000, 1)));  // the row 9 once more, in a copy of the block
  EXPECT_GT(pool.Stats().copied_bytes, 0u);
  EXPECT_NE(sequence->Blocks(0).block(0), tensor->dl_tensor.data);
  sequence.reset();
  EXPECT_EQ(At(tensor->dl_tensor, 1, 9, 3), before);
  EXPECT_GT(pool.used_bytes(), 0u);
  tensor.reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(DlpackViewTest, TheOwnerIsReleasedWithTheTensor) {
  KvPool pool(Budget(kAmpleBytes));
  KvSequence sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
  MustOk(Append(sequence, Tokens(0, 1)));
  const auto owner = std::make_shared<const int>(1);
  Tensor tensor = Owned(DlpackRows(sequence, {0, KvPart::kKeys, owner}, 0, 1));
  EXPECT_EQ(owner.use_count(), 2);
  tensor.reset();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(DlpackViewTest, GatheredRowsOfPackedCodecsAreWhatReadRowsGives) {
  KvPool pool(Budget(kAmpleBytes));
  const KvLayout layout = {.kv_heads = 2,
                           .key_dim = 64,
                           .value_dim = 96,
                           .key_codec = KvCodec::Affine(4, 64),
                           .value_codec = KvCodec::Turbo(3)};
  KvSequence sequence =
      Must(KvSequence::Create(&pool, Spec({{layout, RetentionSpec::Window(100)}})));
  MustOk(Append(sequence, Tokens(0, 300)));
  const KvRows expected = sequence.ReadRows(0, 200, 270);
  const Tensor values = Owned(DlpackRows(sequence, {0, KvPart::kValues, nullptr}, 200, 270));
  const DLTensor& tensor = values->dl_tensor;
  EXPECT_EQ(tensor.shape[0], 70);
  EXPECT_EQ(tensor.shape[1], 2);
  EXPECT_EQ(tensor.shape[2], 96);
  EXPECT_EQ(tensor.strides[0], 192);
  EXPECT_EQ(std::memcmp(tensor.data, expected.values.data(), expected.values.size() * 4), 0);
}

TEST(DlpackViewTest, APackedBlockIsRefusedByName) {
  KvPool pool(Budget(kAmpleBytes));
  const KvLayout layout = {.kv_heads = 2,
                           .key_dim = 64,
                           .value_dim = 64,
                           .key_codec = KvCodec::Affine(4, 64),
                           .dense_start = 64};
  KvSequence sequence = Must(KvSequence::Create(&pool, Spec({{layout, RetentionSpec::All()}})));
  MustOk(sequence.Reserve(70));
  sequence.Advance(70);
  const DlpackRequest keys{0, KvPart::kKeys, nullptr};
  EXPECT_EQ(Owned(DlpackBlock(sequence, keys, 0))->dl_tensor.dtype.bits, 16);
  const auto packed = DlpackBlock(sequence, keys, 1);
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(packed.error().message.find("affine4:64"), std::string::npos);
}

TEST(DlpackViewTest, WhatIsNotHeldIsRefused) {
  KvPool pool(Budget(kAmpleBytes));
  KvSequence sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::Window(100))})));
  MustOk(Append(sequence, Tokens(0, 300)));
  MustOk(sequence.Reserve(64));
  const DlpackRequest keys{0, KvPart::kKeys, nullptr};
  for (const int64_t block : {-1, 0, 2, 5, 6}) {
    EXPECT_FALSE(DlpackBlock(sequence, keys, block).ok()) << block;
  }
  EXPECT_FALSE(DlpackBlock(sequence, keys, INT64_MAX).ok());
  EXPECT_FALSE(DlpackBlock(sequence, {1, KvPart::kKeys, nullptr}, 4).ok());
  EXPECT_FALSE(DlpackBlock(sequence, {-1, KvPart::kKeys, nullptr}, 4).ok());
  EXPECT_FALSE(DlpackRows(sequence, keys, 191, 192).ok());
  EXPECT_FALSE(DlpackRows(sequence, keys, 200, 199).ok());
  EXPECT_FALSE(DlpackRows(sequence, keys, 200, 1000).ok());
  EXPECT_FALSE(DlpackRows(sequence, keys, INT64_MIN, INT64_MAX).ok());
  EXPECT_EQ(Owned(DlpackRows(sequence, keys, 192, 192))->dl_tensor.shape[0], 0);
}

// Behind the first rows, which are kept, there are none up to the window.
TEST(DlpackViewTest, WhatLiesBetweenKeptRowsAndTheWindowIsRefused) {
  KvPool pool(Budget(kAmpleBytes));
  KvSequence sequence =
      Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::Window(256, 64))})));
  for (Position end = 0; end < 1000; end += 50) MustOk(Append(sequence, Tokens(end, 50)));
  const DlpackRequest keys{0, KvPart::kKeys, nullptr};
  int64_t held = 0;
  for (int64_t block = 0; block < 17; ++block) {
    const auto tensor = DlpackBlock(sequence, keys, block);
    if (!tensor.ok()) continue;
    ++held;
    EXPECT_EQ(Owned(*tensor)->dl_tensor.data, sequence.Blocks(0).block(block)) << block;
  }
  EXPECT_EQ(held, 5);  // the first, and those of rows 768 to 999
  EXPECT_FALSE(DlpackBlock(sequence, keys, 1).ok());
}

}  // namespace
}  // namespace kvasir
