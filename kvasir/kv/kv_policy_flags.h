// What the flags of the command line and the server say about the cache, as they were given.
// Deliberately without meaning: KvPolicy::FromFlags gives it.
#ifndef KVASIR_KV_KV_POLICY_FLAGS_H_
#define KVASIR_KV_KV_POLICY_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvasir {

// Empty: the flag was not given. Each member's flag is its name with dashes, --kv-bits and so on.
struct KvPolicyFlags {
  // Bits per element of keys and values: "2", "3", "4", "5", "6", "8"; turboquant: "2", "2.5",
  // "3", "3.5", "4", where .5 rounds down for keys and up for values.
  std::string kv_bits;
  std::string kv_key_bits;    // of keys alone; overrides kv_bits; whole
  std::string kv_value_bits;  // of values alone; likewise
  // Elements that share a scale: 32, 64 or 128. Default 64.
  std::optional<int64_t> kv_group_size;
  // "uniform" (default; affine as in MLX), "rotated" (uniform after a rotation), "turboquant".
  std::string kv_quant_scheme;

  // "f32", "f16" (default) or "bf16": of what is not quantized.
  std::string kv_dtype;
  std::string kv_key_dtype;    // of keys, which are then not quantized
  std::string kv_value_dtype;  // of values, likewise

  // Tokens; rounded up to whole blocks of 64, as are all tokens below except kv_keep_first.
  std::optional<int64_t> quantized_kv_start;  // positions below stay 16 bit. Default 0
  std::optional<int64_t> kv_recent;           // the latest rows stay 16 bit. Default 0
  // "auto" (default), "none", or indices as in "0,1,27": full-attention layers that stay 16 bit.
  std::string kv_dense_layers;
  std::string kv_window_layers;  // "dense" (default) or "packed"

  std::optional<int64_t> compact_kv_budget;    // tokens each full-attention layer keeps
  std::optional<int64_t> kv_keep_first;        // never evicted. Default 4
  std::optional<int64_t> kv_keep_recent;       // never evicted. Default 128, or all but a block
  std::string kv_score;                        // a RowScore's name. Default "keydiff"
  std::optional<int64_t> kv_compact_interval;  // tokens between compactions. Default 256
  bool kv_budget_per_layer = false;            // each layer keeps its own rows
  std::string kv_budget_skip_layers;           // indices of layers that keep every row
};

// One sentence for every number that FromFlags rounds up to whole blocks: for logs.
std::vector<std::string> DescribeRounding(const KvPolicyFlags& flags);

}  // namespace kvasir

#endif  // KVASIR_KV_KV_POLICY_FLAGS_H_
