#include "kvasir/kv/kv_policy.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/kv/kv_policy_flags.h"
#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

constexpr int kQueryHeads = 4;

KvLayerSpec Layer(int dim = 64, RetentionSpec retention = RetentionSpec::All()) {
  KvLayerSpec layer;
  layer.layout = {.kv_heads = 2, .key_dim = dim, .value_dim = dim};
  layer.retention = retention;
  layer.inv_freq.assign(static_cast<size_t>(dim) / 2, 1.0f);
  return layer;
}

KvCacheSpec Full(int layers, int dim = 64) { return KvCacheSpec::Uniform(layers, Layer(dim)); }

// As in Gemma 3: every `period`-th layer has full attention.
KvCacheSpec Mixed(int layers, int period) {
  KvCacheSpec spec;
  for (int i = 0; i < layers; ++i) {
    const bool full = (i + 1) % period == 0;
    spec.layers.push_back(Layer(64, full ? RetentionSpec::All() : RetentionSpec::Window(512)));
  }
  return spec;
}

KvPolicy Policy(const KvPolicyFlags& flags) {
  Result<KvPolicy> policy = KvPolicy::FromFlags(flags);
  EXPECT_TRUE(policy.ok()) << policy.error().message;
  return policy.ok() ? *policy : KvPolicy{};
}

KvCacheSpec Applied(const KvPolicyFlags& flags, const KvCacheSpec& spec) {
  Result<KvCacheSpec> applied = Policy(flags).Apply(spec, kQueryHeads);
  EXPECT_TRUE(applied.ok()) << applied.error().message;
  return applied.ok() ? *applied : KvCacheSpec{};
}

// "keys/values" of every layer.
std::vector<std::string> Codecs(const KvCacheSpec& spec) {
  std::vector<std::string> names;
  for (const KvLayerSpec& layer : spec.layers) {
    names.push_back(layer.layout.key_codec.name() + "/" + layer.layout.value_codec.name());
  }
  return names;
}

// Indices of the layers whose rows are dense.
std::vector<int> DenseLayers(const KvCacheSpec& spec) {
  std::vector<int> dense;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].layout.key_codec.is_dense()) dense.push_back(static_cast<int>(i));
  }
  return dense;
}

struct CodecCase {
  KvPolicyFlags flags;
  const char* keys;
  const char* values;
};

TEST(KvPolicyTest, FlagsChooseCodecs) {
  const CodecCase cases[] = {
      {{}, "f16", "f16"},
      {{.kv_dtype = "bf16"}, "bf16", "bf16"},
      {{.kv_dtype = "f32", .kv_value_dtype = "f16"}, "f32", "f16"},
      {{.kv_bits = "8"}, "affine8:64", "affine8:64"},
      {{.kv_bits = "4.0"}, "affine4:64", "affine4:64"},
      {{.kv_bits = "4", .kv_group_size = 32}, "affine4:32", "affine4:32"},
      {{.kv_bits = "4", .kv_quant_scheme = "rotated"}, "affine4:64+rot", "affine4:64+rot"},
      {{.kv_bits = "4", .kv_key_bits = "8"}, "affine8:64", "affine4:64"},
      {{.kv_key_bits = "8", .kv_value_bits = "3"}, "affine8:64", "affine3:64"},
      {{.kv_key_bits = "8"}, "affine8:64", "f16"},
      {{.kv_value_bits = "4", .kv_dtype = "bf16"}, "bf16", "affine4:64"},
      {{.kv_bits = "4", .kv_key_dtype = "f32"}, "f32", "affine4:64"},
      {{.kv_bits = "3", .kv_quant_scheme = "turboquant"}, "turbo3", "turbo3"},
      {{.kv_bits = "3.5", .kv_quant_scheme = "turboquant"}, "turbo3", "turbo4"},
      {{.kv_bits = "2.5", .kv_quant_scheme = "turboquant"}, "turbo2", "turbo3"},
      {{.kv_bits = "3.5", .kv_key_bits = "4", .kv_quant_scheme = "turboquant"}, "turbo4", "turbo4"},
  };
  for (const CodecCase& test : cases) {
    SCOPED_TRACE(std::string(test.keys) + " " + test.values);
    const KvPolicy policy = Policy(test.flags);
    EXPECT_EQ(policy.key_codec.name(), test.keys);
    EXPECT_EQ(policy.value_codec.name(), test.values);
  }
}

struct ErrorCase {
  KvPolicyFlags flags;
  // The flag to blame and what to use instead.
  const char* blames;
  const char* advises;
};

TEST(KvPolicyTest, FlagsThatMakeNoSenseSayWhatWould) {
  const ErrorCase cases[] = {
      {{.kv_bits = "3.5"}, "--kv-bits 3.5", "turboquant"},
      {{.kv_bits = "3.5", .kv_quant_scheme = "rotated"}, "--kv-bits 3.5", "--kv-value-bits"},
      {{.kv_bits = "7"}, "--kv-bits 7", "2, 3, 4, 5, 6 and 8"},
      {{.kv_bits = "1"}, "--kv-bits 1", "2, 3, 4, 5, 6 and 8"},
      {{.kv_bits = "16"}, "--kv-bits 16", "leave the flag out"},
      {{.kv_bits = "four"}, "--kv-bits four", "8, 4 or 3.5"},
      {{.kv_bits = "4.5.5"}, "--kv-bits 4.5.5", "8, 4 or 3.5"},
      {{.kv_bits = "-4"}, "--kv-bits -4", "8, 4 or 3.5"},
      {{.kv_bits = "99999999999"}, "--kv-bits 99999999999", "8, 4 or 3.5"},
      {{.kv_bits = "8", .kv_quant_scheme = "turboquant"}, "--kv-bits 8", "uniform"},
      {{.kv_bits = "4.5", .kv_quant_scheme = "turboquant"}, "--kv-bits 4.5", "2.5"},
      {{.kv_key_bits = "3.5", .kv_quant_scheme = "turboquant"}, "--kv-key-bits", "--kv-bits 3.5"},
      {{.kv_bits = "4", .kv_quant_scheme = "nf4"}, "--kv-quant-scheme nf4", "turboquant"},
      {{.kv_bits = "4", .kv_group_size = 48}, "--kv-group-size", "32, 64 or 128"},
      {{.kv_bits = "4", .kv_group_size = 64, .kv_quant_scheme = "turboquant"},
       "--kv-group-size",
       "leave it out"},
      {{.kv_dtype = "int8"}, "--kv-dtype int8", "f32, f16 or bf16"},
      {{.kv_key_bits = "4", .kv_key_dtype = "f16"}, "--kv-key-bits", "one of the two"},
      {{.kv_bits = "4", .kv_key_dtype = "f16", .kv_value_dtype = "f16"}, "--kv-bits", "leave one"},
      {{.kv_group_size = 64}, "--kv-group-size", "--kv-bits"},
      {{.kv_quant_scheme = "uniform"}, "--kv-quant-scheme", "--kv-bits"},
      {{.quantized_kv_start = 0}, "--quantized-kv-start", "--kv-bits"},
      {{.kv_recent = 64}, "--kv-recent", "--kv-bits"},
      {{.kv_dense_layers = "auto"}, "--kv-dense-layers", "--kv-bits"},
      {{.kv_window_layers = "packed"}, "--kv-window-layers", "--kv-bits"},
      {{.kv_bits = "4", .quantized_kv_start = -1}, "--quantized-kv-start is -1", "from 0"},
      {{.kv_bits = "4", .kv_recent = int64_t{1} << 62}, "--kv-recent", "to 1099511627776"},
      {{.kv_bits = "4", .kv_dense_layers = "1,,2"}, "--kv-dense-layers 1,,2", "0,1,27"},
      {{.kv_bits = "4", .kv_dense_layers = "1,"}, "--kv-dense-layers 1,", "0,1,27"},
      {{.kv_bits = "4", .kv_dense_layers = "-1"}, "--kv-dense-layers -1", "from 0"},
      {{.kv_bits = "4", .kv_window_layers = "some"}, "--kv-window-layers some", "dense or packed"},
      {{.compact_kv_budget = 0}, "--kv-budget is 0", "from 1"},
      {{.compact_kv_budget = 256, .kv_keep_first = -4}, "--kv-keep-first is -4", "from 0"},
      {{.compact_kv_budget = 256, .kv_compact_interval = 0},
       "--kv-compact-interval is 0",
       "from 1"},
      {{.compact_kv_budget = 256, .kv_keep_recent = 256}, "--kv-budget is 256", "--kv-keep-recent"},
      {{.compact_kv_budget = 256, .kv_score = "h2o"}, "--kv-score", "keydiff"},
      {{.compact_kv_budget = 256, .kv_budget_skip_layers = "x"},
       "--kv-budget-skip-layers x",
       "0,1,27"},
      {{.kv_score = "knorm"}, "--kv-score", "--kv-budget"},
      {{.kv_keep_first = 4}, "--kv-keep-first", "--kv-budget"},
      {{.kv_keep_recent = 64}, "--kv-keep-recent", "--kv-budget"},
      {{.kv_compact_interval = 64}, "--kv-compact-interval", "--kv-budget"},
      {{.kv_budget_per_layer = true}, "--kv-budget-per-layer", "--kv-budget"},
      {{.kv_budget_skip_layers = "0"}, "--kv-budget-skip-layers", "--kv-budget"},
      {{.kv_bits = "4", .kv_recent = 128, .compact_kv_budget = 512, .kv_keep_recent = 64},
       "--kv-keep-recent is 64",
       "at least as many"},
  };
  for (const ErrorCase& test : cases) {
    SCOPED_TRACE(test.blames);
    const Result<KvPolicy> policy = KvPolicy::FromFlags(test.flags);
    ASSERT_FALSE(policy.ok());
    EXPECT_EQ(policy.error().code, ErrorCode::kInvalidArgument);
    const std::string& message = policy.error().message;
    EXPECT_NE(message.find(test.blames), std::string::npos) << message;
    EXPECT_NE(message.find(test.advises), std::string::npos) << message;
  }
}

TEST(KvPolicyTest, AutoKeepsTheLayersAtTheEndsDense) {
  const KvPolicyFlags bits4 = {.kv_bits = "4"};
  EXPECT_EQ(DenseLayers(Applied(bits4, Full(1))), std::vector<int>{});
  EXPECT_EQ(DenseLayers(Applied(bits4, Full(2))), std::vector<int>{});
  EXPECT_EQ(DenseLayers(Applied(bits4, Full(3))), (std::vector<int>{2}));
  EXPECT_EQ(DenseLayers(Applied(bits4, Full(7))), (std::vector<int>{6}));
  EXPECT_EQ(DenseLayers(Applied(bits4, Full(8))), (std::vector<int>{0, 1, 7}));
  EXPECT_EQ(DenseLayers(Applied(bits4, Full(28))), (std::vector<int>{0, 1, 27}));
}

TEST(KvPolicyTest, AutoCountsFullAttentionLayersOnly) {
  const KvCacheSpec spec = Applied({.kv_bits = "4"}, Mixed(8, 2));
  EXPECT_EQ(DenseLayers(spec), (std::vector<int>{0, 2, 4, 6, 7}));
}

TEST(KvPolicyTest, DenseLayersAreAChoice) {
  EXPECT_EQ(DenseLayers(Applied({.kv_bits = "4", .kv_dense_layers = "none"}, Full(8))),
            std::vector<int>{});
  EXPECT_EQ(DenseLayers(Applied({.kv_bits = "4", .kv_dense_layers = "5,3,3"}, Full(8))),
            (std::vector<int>{3, 5}));
  EXPECT_EQ(DenseLayers(Applied({.kv_bits = "4", .kv_dense_layers = "none"}, Mixed(4, 2))),
            (std::vector<int>{0, 2}));
  EXPECT_EQ(DenseLayers(Applied({.kv_bits = "4", .kv_window_layers = "packed"}, Mixed(6, 2))),
            (std::vector<int>{5}));
}

TEST(KvPolicyTest, DenseLayersHaveOneStorageThroughout) {
  const KvPolicyFlags flags = {
      .kv_bits = "4", .kv_dtype = "bf16", .quantized_kv_start = 5000, .kv_recent = 100};
  const KvCacheSpec spec = Applied(flags, Full(3));
  const KvLayout& packed = spec.layers[0].layout;
  EXPECT_EQ(packed.dense_start, 5056);
  EXPECT_EQ(packed.dense_recent, 128);
  EXPECT_EQ(packed.dense_codec.name(), "bf16");
  EXPECT_EQ(packed.BlockAt(0).key_codec.name(), "bf16");
  EXPECT_EQ(packed.BlockAt(79).key_codec.name(), "affine4:64");
  const KvLayout& dense = spec.layers[2].layout;
  EXPECT_EQ(dense.dense_start, 0);
  EXPECT_EQ(dense.dense_recent, 0);
  EXPECT_EQ(dense.key_codec.name(), "bf16");
}

TEST(KvPolicyTest, ALayerThatSharesRowsFollows) {
  KvCacheSpec model = Full(4);
  model.layers[3].shares_layer = 1;
  const KvCacheSpec spec = Applied({.kv_bits = "4", .compact_kv_budget = 512}, model);
  EXPECT_EQ(spec.layers[3].layout, spec.layers[1].layout);
  EXPECT_EQ(spec.layers[3].retention, spec.layers[1].retention);
  // The last layer with rows of its own is the one that stays dense.
  EXPECT_EQ(DenseLayers(spec), (std::vector<int>{2}));
}

TEST(KvPolicyTest, RecurrentAndFromValueLayersStayWhatTheyAre) {
  KvCacheSpec model = Full(3);
  model.layers[0] = KvLayerSpec{};
  model.layers[0].state_bytes = 4096;
  model.layers[1].layout.key_codec = {KvCodec::Kind::kFromValue};
  model.layers[1].key_norm.assign(64, 1.0f);
  const KvPolicy policy = Policy({.kv_bits = "4", .kv_dense_layers = "none"});
  const Result<KvCacheSpec> spec = policy.Apply(model, kQueryHeads);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->layers[0], model.layers[0]);
  EXPECT_EQ(Codecs(*spec)[1], "from-value/affine4:64");
  EXPECT_EQ(Codecs(*spec)[2], "affine4:64/affine4:64");
}

TEST(KvPolicyTest, BudgetDefaultsAndRounding) {
  const KvPolicyFlags flags = {
      .compact_kv_budget = 1000, .kv_keep_recent = 65, .kv_compact_interval = 100};
  const RetentionSpec budget = *Policy(flags).budget;
  EXPECT_EQ(budget.name(), "budget:1024,keep=4,recent=128,interval=128,score=keydiff");
  EXPECT_EQ(DescribeRounding(flags).size(), 3u);
  EXPECT_EQ(DescribeRounding(flags)[0],
            "--kv-budget 1000 is rounded up to 1024: the cache works in blocks of 64 "
            "tokens");
  EXPECT_TRUE(DescribeRounding({.compact_kv_budget = 1024}).empty());

  EXPECT_EQ(Policy({.compact_kv_budget = 1024}).budget->name(),
            "budget:1024,keep=4,recent=128,interval=256,score=keydiff");
  EXPECT_EQ(Policy({.compact_kv_budget = 128}).budget->recent, 64);
  EXPECT_EQ(Policy({.compact_kv_budget = 64}).budget->recent, 0);
  EXPECT_EQ(Policy({.kv_bits = "4", .kv_recent = 256, .compact_kv_budget = 512}).budget->recent,
            256);
  EXPECT_TRUE(Policy({.compact_kv_budget = 64, .kv_budget_per_layer = true}).budget->per_layer);
}

TEST(KvPolicyTest, BudgetIsForFullAttentionLayers) {
  const KvCacheSpec spec =
      Applied({.compact_kv_budget = 256, .kv_budget_skip_layers = "1"}, Mixed(6, 2));
  for (size_t i = 0; i < 6; ++i) {
    const auto kind = spec.layers[i].retention.kind;
    const auto want = i % 2 == 0 ? RetentionSpec::Kind::kWindow
                      : i == 1   ? RetentionSpec::Kind::kAll
                                 : RetentionSpec::Kind::kBudget;
    EXPECT_EQ(kind, want) << i;
  }
}

TEST(KvPolicyTest, ScoresGetThePlanesTheyRead) {
  const auto layout = [](const char* score) {
    return Applied({.compact_kv_budget = 512, .kv_score = score, .kv_compact_interval = 128},
                   Full(1))
        .layers[0]
        .layout;
  };
  for (const char* score : {"knorm", "knorm-high"}) EXPECT_TRUE(layout(score).key_norms) << score;
  for (const char* score : {"keydiff", "lagkv", "streaming", "random"}) {
    EXPECT_FALSE(layout(score).key_norms) << score;
    EXPECT_EQ(layout(score).query_floats, 0) << score;
    EXPECT_EQ(layout(score).observed_block, -1) << score;
  }
  for (const char* score : {"tova", "expected-attention"}) {
    EXPECT_EQ(layout(score).query_floats, kQueryHeads * 64) << score;
    // The block that ends where the compaction happens.
    EXPECT_EQ(layout(score).observed_block, 9) << score;
  }
}

void ExpectRefused(const Result<KvCacheSpec>& spec, const char* blames, const char* advises) {
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
  const std::string& message = spec.error().message;
  EXPECT_NE(message.find(blames), std::string::npos) << message;
  EXPECT_NE(message.find(advises), std::string::npos) << message;
}

// A policy replaces the one before, whatever that was.
TEST(KvPolicyTest, AppliedAgainNothingOfTheFirstIsLeft) {
  const KvCacheSpec plain = Full(4);
  const KvPolicyFlags packed = {.kv_bits = "4", .kv_recent = 128, .kv_dense_layers = "none"};
  const KvPolicyFlags budget = {.compact_kv_budget = 1024, .kv_score = "lagkv"};
  const KvPolicyFlags larger = {.compact_kv_budget = 2048};
  for (const KvPolicyFlags& first : {packed, budget}) {
    for (const KvPolicyFlags& second : {KvPolicyFlags{}, packed, budget, larger}) {
      EXPECT_EQ(Applied(second, Applied(first, plain)), Applied(second, plain));
    }
  }
}

TEST(KvPolicyTest, ModelsThatDoNotFitAreRefusedWithAdvice) {
  const KvPolicy bits4 = Policy({.kv_bits = "4"});
  const KvPolicy budget = Policy({.compact_kv_budget = 256});
  const KvCacheSpec windows = KvCacheSpec::Uniform(2, Layer(64, RetentionSpec::Window(512)));
  ExpectRefused(bits4.Apply(Full(2, 96), 4), "layer 0 cannot be stored", "group size of 32 fits");
  ExpectRefused(bits4.Apply(Full(2, 80), 4), "layer 0 cannot be stored", "turboquant fits");
  ExpectRefused(bits4.Apply(Full(2, 40), 4), "layer 0 cannot be stored", "16 bit");
  ExpectRefused(bits4.Apply(windows, 4), "nothing to quantize", "--kv-window-layers packed");
  ExpectRefused(budget.Apply(windows, 4), "nothing to evict", "without a budget");
  ExpectRefused(
      Policy({.compact_kv_budget = 256, .kv_budget_skip_layers = "0,1"}).Apply(Full(2), 4),
      "nothing to evict", "without a budget");
  ExpectRefused(Policy({.kv_bits = "4", .kv_dense_layers = "5"}).Apply(Full(2), 4), "layer 5",
                "0 to 1");
  ExpectRefused(Policy({.kv_bits = "4", .kv_dense_layers = "0"}).Apply(Mixed(2, 2), 4), "layer 0",
                "leave it out");
  ExpectRefused(Policy({.kv_bits = "4", .kv_dense_layers = "0,1"}).Apply(Full(2), 4),
                "nothing to quantize", "keep fewer");
  ExpectRefused(Policy({.compact_kv_budget = 256, .kv_score = "tova"}).Apply(Full(2), 3),
                "3 query heads", "keydiff");
  KvCacheSpec no_rope = Full(2);
  no_rope.layers[1].inv_freq.clear();
  const KvPolicy expected = Policy({.compact_kv_budget = 256, .kv_score = "expected-attention"});
  ExpectRefused(expected.Apply(no_rope, 4), "layer 1 has 0 rotary frequencies", "keydiff");
}

TEST(KvPolicyTest, ValidateNamesWhatNoFlagCanSay) {
  const auto message = [](const KvPolicy& policy) {
    const Status status = policy.Validate();
    return status.ok() ? std::string() : status.error().message;
  };
  const RetentionSpec budget = {.kind = RetentionSpec::Kind::kBudget, .size = 128};
  RetentionSpec tova = budget;
  tova.score = RowScore::kTova;
  RetentionSpec odd = budget;
  odd.size = 100;
  const KvCodec affine = KvCodec::Affine(4, 64);
  const KvCodec from_value = {KvCodec::Kind::kFromValue};
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.budget = budget}), "");
  EXPECT_NE(message({.dense_codec = affine}).find("f32, f16 or bf16"), std::string::npos);
  EXPECT_NE(message({.key_codec = from_value}).find("from-value"), std::string::npos);
  EXPECT_NE(message({.dense_start = 64}).find("packed codec"), std::string::npos);
  EXPECT_NE(message({.key_codec = affine, .dense_start = 65}).find("dense_start"),
            std::string::npos);
  EXPECT_NE(message({.key_codec = affine, .dense_recent = 64, .budget = budget}).find("latest"),
            std::string::npos);
  EXPECT_NE(message({.dense_layer_list = {1}}).find("kListed"), std::string::npos);
  EXPECT_NE(message({.budget = RetentionSpec::All()}).find("kind budget"), std::string::npos);
  EXPECT_NE(message({.budget = odd}).find("multiple of 64"), std::string::npos);
  EXPECT_NE(message({.budget = tova}).find("interval"), std::string::npos);
  EXPECT_NE(message({.budget_skip_layers = {1}}).find("set a budget"), std::string::npos);
}

TEST(KvPolicyTest, DescribesItselfInOneLine) {
  const auto describe = [](const KvPolicyFlags& flags, const KvCacheSpec& model) {
    return Policy(flags).Describe(Applied(flags, model));
  };
  // 2 layers x 2 heads x (64 + 64) f16.
  EXPECT_EQ(describe({}, Full(2)), "f16; 1.0 KiB per token");
  // 5 packed layers of 2 x 2 x (32 + 4) bytes and 3 dense ones of 512.
  EXPECT_EQ(describe({.kv_bits = "4"}, Full(8)),
            "f16 (layers 0-1,7); affine4:64 (layers 2-6); 2.2 KiB per token");
  EXPECT_EQ(describe({.kv_bits = "3.5",
                      .kv_quant_scheme = "turboquant",
                      .quantized_kv_start = 100,
                      .kv_recent = 64,
                      .kv_dense_layers = "none",
                      .compact_kv_budget = 512},
                     Full(2)),
            "keys turbo3, values turbo4; first 128 rows f16; last 64 rows also f16; "
            "budget:512,keep=4,recent=128,interval=256,score=keydiff; 0.2 KiB per token");
  // States take what they take, however many tokens there are.
  KvCacheSpec states = Full(2);
  states.layers.push_back(kv_testing::Recurrent(4096));
  EXPECT_EQ(KvPolicy().Describe(states), "f16; 1.0 KiB per token; 4.0 KiB of states in 1 layer");
  states.layers = {kv_testing::Recurrent(4096), kv_testing::Recurrent(1024)};
  EXPECT_EQ(KvPolicy().Describe(states), "5.0 KiB of states in 2 layers");
}

}  // namespace
}  // namespace kvasir
