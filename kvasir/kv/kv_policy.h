// What a user wants of the cache (codecs, what stays 16 bit, a budget), for any model: one object
// that the command line, the server and embedders all use, so that every mode means the same.
// Deliberately without memory: it makes a KvCacheSpec of another one.
#ifndef KVASIR_KV_KV_POLICY_H_
#define KVASIR_KV_KV_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/kv/kv_spec.h"

namespace kvasir {

struct KvPolicyFlags;

struct KvPolicy {
  enum class DenseLayers {
    // The last full-attention layer if there are at least 3, which feeds the output directly, and
    // the first two if there are at least 8.
    kAuto,
    kNone,
    kListed,  // those in dense_layer_list
  };
  enum class WindowLayers { kDense, kPacked };

  // f32, f16 or bf16: how rows are stored that no packed codec may touch.
  KvCodec dense_codec;
  // Each dense or packed. Dense: used as it is, everywhere.
  KvCodec key_codec;
  KvCodec value_codec;

  // Only for packed codecs. Positions of the sequence below dense_start stay dense, whatever is
  // computed alone, in a batch or in chunks; with a budget, that many rows. (MLX converts them
  // once the sequence reaches the start; here they stay.) A multiple of 64.
  int64_t dense_start = 0;
  // At least as many of the latest rows are read in dense form, at the cost of storing them twice.
  // A multiple of 64.
  int64_t dense_recent = 0;
  // Full-attention layers that stay dense.
  DenseLayers dense_layers = DenseLayers::kAuto;
  std::vector<int> dense_layer_list;
  // Window and chunk layers: their size is bounded, so by default nothing is lost on them.
  WindowLayers window_layers = WindowLayers::kDense;

  // Of kind kBudget: for every full-attention layer but those in budget_skip_layers.
  std::optional<RetentionSpec> budget;
  std::vector<int> budget_skip_layers;

  // ERRORS: kInvalidArgument for flags that make no sense, together or alone; the sentence says
  // why, and what to use instead.
  static Result<KvPolicy> FromFlags(const KvPolicyFlags& flags);

  bool packs() const { return key_codec.is_packed() || value_codec.is_packed(); }

  // What can be said without a model. ERRORS: as FromFlags.
  Status Validate() const;
  // `dense`, a model's spec with codecs that do not matter here, as this policy wants it.
  // query_heads: per layer, for scores that look at queries. Layers that share rows follow the
  // layer they share; recurrent layers stay as they are; keys stored from-value stay so.
  // ERRORS: kInvalidArgument, naming the layer that cannot be stored so and what would fit it.
  Result<KvCacheSpec> Apply(const KvCacheSpec& dense, int query_heads) const;

  // One line for logs about a spec that Apply made, with the bytes per token.
  std::string Describe(const KvCacheSpec& spec) const;

  friend bool operator==(const KvPolicy&, const KvPolicy&) = default;
};

// The next multiple of a block's 64 tokens. REQUIRES: 0 <= tokens <= kMaxRetentionTokens.
int64_t RoundUpToBlocks(int64_t tokens);

}  // namespace kvasir

#endif  // KVASIR_KV_KV_POLICY_H_
