// Ways to store and to evict a tiny model's cache, for tests that must hold under every one.
// Deliberately a list: a new codec or score is one more line.
#ifndef KVASIR_TESTS_SUPPORT_TINY_POLICIES_H_
#define KVASIR_TESTS_SUPPORT_TINY_POLICIES_H_

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kvasir/kv/kv_policy.h"
#include "tests/support/tiny_model.h"

namespace kvasir {

// The models of this list are small enough to run a few hundred tokens many times; with 400 tokens
// every budget has evicted rows, most of them several times.
struct TinyPolicy {
  const char* name;
  const char* folder;
  const char* keys;  // a KvCodec's name
  const char* values;
  const char* budget = "";  // a RetentionSpec's name, or "": every row stays
  int64_t dense_start = 0;
  int64_t dense_recent = 0;
  AttentionMath attention = AttentionMath::kAuto;

  KvPolicy policy() const {
    KvPolicy policy;
    policy.key_codec = ValueOrDie(KvCodec::FromName(keys));
    policy.value_codec = ValueOrDie(KvCodec::FromName(values));
    policy.dense_start = dense_start;
    policy.dense_recent = dense_recent;
    // Nothing stays dense that a packed codec could spoil.
    policy.dense_layers = KvPolicy::DenseLayers::kNone;
    policy.window_layers = KvPolicy::WindowLayers::kPacked;
    if (*budget != '\0') policy.budget = ValueOrDie(RetentionSpec::FromName(budget));
    return policy;
  }
  std::shared_ptr<const KvCacheSpec> Spec(const Model& model) const {
    return std::make_shared<const KvCacheSpec>(
        ValueOrDie(policy().Apply(model.CacheSpec({}), model.query_heads())));
  }
  friend std::ostream& operator<<(std::ostream& out, const TinyPolicy& p) { return out << p.name; }
};

// Mostly window layers; rows of 32 elements, the fewest that every codec can store.
inline constexpr const char* kTinyWindows = "transformers_gemma3_sharded_bf16";
// Four full-attention layers; rows of 16 and of 24.
inline constexpr const char* kTinyFull = "public_llama_f32";
inline constexpr const char* kTinyQwen = "public_qwen3_f32";

// One full-attention layer of six, whose keys its values say; rows of 16 and of 32.
inline constexpr const char* kTinyFromValue = "transformers_gemma4_one_projection_bf16";

// One full-attention layer of five; the others have states.
inline constexpr const char* kTinyStates = "transformers_qwen3_5_bf16";

// Latents, and a layer that drafts; rows of 72.
inline constexpr const char* kTinyLatent = "transformers_glm4_moe_lite_bf16";

inline std::vector<TinyPolicy> TinyPolicies() {
  return {
      {"affine8", kTinyWindows, "affine8:32", "affine8:32"},
      {"affine4", kTinyWindows, "affine4:32", "affine4:32"},
      {"affine8_in_bytes", kTinyWindows, "affine8:32", "affine8:32", "", 0, 0,
       AttentionMath::kInt8},
      {"k8v4_in_words", kTinyWindows, "affine8:32", "affine4:32", "", 0, 0, AttentionMath::kInt16},
      {"affine8_in_float", kTinyWindows, "affine8:32", "affine8:32", "", 0, 0,
       AttentionMath::kFloat},
      {"k8v4_in_float", kTinyWindows, "affine8:32", "affine4:32", "", 0, 0, AttentionMath::kFloat},
      {"affine3", kTinyWindows, "affine3:32", "affine3:32"},
      {"k6v5_in_words", kTinyWindows, "affine6:32", "affine5:32+rot", "", 0, 0,
       AttentionMath::kInt16},
      {"turbo2v2", kTinyWindows, "turbo2", "affine2:32"},
      {"rotated4", kTinyWindows, "affine4:32+rot", "affine4:32+rot"},
      {"turbo4", kTinyFull, "turbo4", "turbo4"},
      {"turbo3h", kTinyWindows, "turbo3", "turbo4"},
      {"turbo2", kTinyFull, "turbo2", "turbo2"},
      {"k8v4", kTinyWindows, "affine8:32", "affine4:32"},
      {"dense_ends", kTinyWindows, "affine4:32", "affine4:32", "", 128, 64},
      {"knorm", kTinyFull, "f16", "f16", "budget:128,keep=4,recent=64,interval=64,score=knorm"},
      {"knorm_high_each_layer", kTinyQwen, "f32", "f32",
       "budget:128,keep=4,interval=64,score=knorm-high,per-layer"},
      {"keydiff_recent", kTinyFull, "turbo4", "turbo4",
       "budget:128,keep=4,recent=64,interval=64,score=keydiff", 0, 64},
      {"streaming_start", kTinyWindows, "affine4:32", "affine4:32",
       "budget:128,keep=4,recent=64,interval=64,score=streaming", 64, 0},
      {"tova", kTinyWindows, "affine8:32", "affine4:32",
       "budget:128,keep=4,interval=64,score=tova"},
      {"expected_attention", kTinyFull, "turbo3", "turbo4",
       "budget:128,keep=4,recent=64,interval=64,score=expected-attention", 0, 64},
      {"lagkv", kTinyQwen, "bf16", "bf16", "budget:192,keep=4,recent=64,interval=128,score=lagkv"},
      {"from_value_turbo4", kTinyFromValue, "turbo4", "turbo4"},
      {"from_value_knorm", kTinyFromValue, "f16", "f16",
       "budget:128,keep=4,recent=64,interval=64,score=knorm"},
      {"random", kTinyFull, "f16", "turbo2",
       "budget:128,keep=4,interval=64,score=random,per-layer"},
      {"states", kTinyStates, "f16", "f16"},
      {"states_dense_ends", kTinyStates, "affine4:32", "turbo4", "", 128, 64},
      {"states_knorm", kTinyStates, "f16", "f16",
       "budget:128,keep=4,recent=64,interval=64,score=knorm"},
  };
}

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_TINY_POLICIES_H_
