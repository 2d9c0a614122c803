// What a model's cache looks like: layout and retention of every layer.
// Deliberately a plain value without memory: KvSequence makes caches from it.
#ifndef KVASIR_KV_KV_SPEC_H_
#define KVASIR_KV_KV_SPEC_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/retention_spec.h"
#include "kvasir/tensor/derived_key.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

struct KvLayerSpec {
  KvLayout layout;
  RetentionSpec retention;
  // Index of an earlier layer whose rows this one reads (Gemma 4 and others); -1: its own.
  int shares_layer = -1;
  // Bytes of a recurrent layer's state (convolution tail, what a delta net or Mamba-2 keeps). Such
  // a layer has no rows: layout and retention stay as default. The state is 64-byte aligned if this
  // is a multiple of 64. 0: an attention layer.
  size_t state_bytes = 0;
  // Inverse frequencies of the rotary embedding, [key_dim / 2], half-split pairing: pair i turns by
  // position * inv_freq[i]. Needed for the score expected-attention and for from-value keys.
  std::vector<float> inv_freq;
  // Weights of the key norm, [key_dim]: keys are RoPE(key_norm * value). For from-value keys only.
  std::vector<float> key_norm;
  // Factor of query-key products, for scores that look at queries. 0: 1 / sqrt(key_dim).
  float attention_scale = 0;

  // What from-value keys are made of.
  KvKeyDerivation derivation() const { return {key_norm, inv_freq}; }
  bool is_recurrent() const { return state_bytes > 0; }
  bool owns_rows() const { return shares_layer < 0 && !is_recurrent(); }
  friend bool operator==(const KvLayerSpec&, const KvLayerSpec&) = default;
};

struct KvCacheSpec {
  std::vector<KvLayerSpec> layers;

  // Every layer alike, each with its own rows.
  static KvCacheSpec Uniform(int layer_count, const KvLayerSpec& layer);

  // Bytes one token adds, over all layers that own rows. Rows that a window drops still count:
  // this is the cost while the token is held by every layer.
  size_t TokenBytes() const;
  // Bytes of the blocks a sequence holds at `position`, the last token appended by itself, nothing
  // shared, nothing reserved.
  // REQUIRES: Validate().ok(), position >= 0.
  size_t BytesAt(Position position) const;
  // Whether some layer keeps a state instead of rows, which cannot go back by single tokens.
  bool HasRecurrentLayers() const {
    return std::any_of(layers.begin(), layers.end(),
                       [](const KvLayerSpec& layer) { return layer.is_recurrent(); });
  }

  // ERRORS: kInvalidArgument, naming the layer and field. A sharing layer must name an earlier
  // layer that owns its rows, and have that layer's layout and retention.
  Status Validate() const;

  friend bool operator==(const KvCacheSpec&, const KvCacheSpec&) = default;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_SPEC_H_
