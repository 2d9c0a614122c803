#include "kvasir/kv/kv_policy.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/kv/row_scores.h"

namespace kvasir {
namespace {

// Below 3 full-attention layers a rule that keeps the last one would keep too much; from 8 on the
// first two are few enough to keep as well.
constexpr size_t kLayersToKeepLast = 3;
constexpr size_t kLayersToKeepFirst = 8;

Error Invalid(const std::string& what) {
  return {ErrorCode::kInvalidArgument, "KV policy: " + what};
}

Error InvalidLayer(size_t layer, const std::string& what) {
  return Invalid("layer " + std::to_string(layer) + " " + what);
}

bool Contains(const std::vector<int>& list, size_t layer) {
  return std::find(list.begin(), list.end(), static_cast<int>(layer)) != list.end();
}

bool IsFullAttention(const KvLayerSpec& layer) {
  return layer.owns_rows() && layer.retention.kind == RetentionSpec::Kind::kAll;
}

std::vector<int> FullAttentionLayers(const KvCacheSpec& spec) {
  std::vector<int> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (IsFullAttention(spec.layers[i])) layers.push_back(static_cast<int>(i));
  }
  return layers;
}

// What an earlier policy chose is chosen anew.
KvCacheSpec WithoutPolicy(KvCacheSpec spec) {
  for (KvLayerSpec& layer : spec.layers) {
    layer.layout.dense_start = 0;
    layer.layout.dense_recent = 0;
    if (layer.retention.kind != RetentionSpec::Kind::kBudget) continue;
    layer.retention = RetentionSpec::All();
    layer.layout.key_norms = false;
    layer.layout.query_floats = 0;
    layer.layout.observed_block = -1;
  }
  return spec;
}

Status ValidateBlocks(const char* field, int64_t tokens) {
  if (tokens >= 0 && tokens <= kMaxRetentionTokens && tokens % kBlockTokens == 0) return {};
  return Invalid(std::string(field) + " is " + std::to_string(tokens) +
                 ", it must be a multiple of 64 tokens (RoundUpToBlocks), 0 or more");
}

// Every index must be that of a full-attention layer with rows of its own.
Status ValidateList(const char* field, const std::vector<int>& list, const KvCacheSpec& spec) {
  for (const int index : list) {
    if (index < 0 || static_cast<size_t>(index) >= spec.layers.size()) {
      return Invalid(std::string(field) + " names layer " + std::to_string(index) +
                     ", but the model's layers are 0 to " + std::to_string(spec.layers.size() - 1));
    }
    if (!IsFullAttention(spec.layers[static_cast<size_t>(index)])) {
      return InvalidLayer(
          static_cast<size_t>(index),
          std::string("is in ") + field +
              ", but is no full-attention layer with rows of its own; leave it out");
    }
  }
  return {};
}

Status ValidateBudget(const RetentionSpec& budget, int64_t dense_recent) {
  if (budget.kind != RetentionSpec::Kind::kBudget) {
    return Invalid("the budget is the retention '" + budget.name() +
                   "', it must be of the kind budget");
  }
  KVASIR_TRY_OK(budget.Validate());
  KVASIR_TRY_OK(ValidateBlocks("the budget's size", budget.size));
  KVASIR_TRY_OK(ValidateBlocks("the budget's interval", budget.interval));
  KVASIR_TRY_OK(ValidateBlocks("the budget's recent", budget.recent));
  if (budget.recent < dense_recent) {
    return Invalid("the budget protects the latest " + std::to_string(budget.recent) +
                   " rows, but the latest " + std::to_string(dense_recent) +
                   " are kept in 16 bit as well and cannot be evicted; protect at least as many");
  }
  if (NeedsQueries(budget.score) && budget.interval == 0) {
    return Invalid("the score " + std::string(RowScoreName(budget.score)) +
                   " looks at queries, which are kept only for compactions at an interval; set an "
                   "interval or use keydiff");
  }
  return {};
}

// What stores heads of `dim` elements in the place of `codec`.
std::string Alternative(const KvCodec& codec, int64_t dim) {
  for (const int group : {128, 64, 32}) {
    KvCodec other = codec;
    other.group = static_cast<uint16_t>(group);
    if (codec.kind == KvCodec::Kind::kAffine && other.Validate(dim).ok()) {
      return "a group size of " + std::to_string(group) + " fits";
    }
  }
  if (KvCodec::Turbo(4).Validate(dim).ok()) return "turboquant fits";
  for (const int group : {64, 32}) {
    if (!codec.rotates() || !KvCodec::Affine(codec.bits, group).Validate(dim).ok()) continue;
    return "the scheme uniform with a group size of " + std::to_string(group) + " fits";
  }
  return "keep the layer in 16 bit";
}

Status ValidateStorage(size_t index, const KvLayout& layout) {
  const std::pair<KvCodec, int> planes[] = {{layout.key_codec, layout.key_dim},
                                            {layout.value_codec, layout.value_dim}};
  for (const auto& [codec, dim] : planes) {
    const Status status = codec.Validate(dim);
    if (status.ok()) continue;
    return InvalidLayer(
        index, "cannot be stored so: " + status.error().message + "; " + Alternative(codec, dim));
  }
  return {};
}

// The layers of `spec` whose rows stay dense although the policy packs.
std::vector<int> DenseLayerIndices(const KvPolicy& policy, const std::vector<int>& full) {
  if (policy.dense_layers == KvPolicy::DenseLayers::kListed) return policy.dense_layer_list;
  std::vector<int> dense;
  if (policy.dense_layers == KvPolicy::DenseLayers::kNone) return dense;
  if (full.size() >= kLayersToKeepFirst) dense = {full[0], full[1]};
  if (full.size() >= kLayersToKeepLast) dense.push_back(full.back());
  return dense;
}

void StoreDense(const KvPolicy& policy, KvLayout& layout) {
  const auto dense = [&](KvCodec codec) { return codec.is_packed() ? policy.dense_codec : codec; };
  if (layout.key_codec.kind != KvCodec::Kind::kFromValue) {
    layout.key_codec = dense(policy.key_codec);
  }
  layout.value_codec = dense(policy.value_codec);
  layout.dense_codec = policy.dense_codec;
}

void StorePacked(const KvPolicy& policy, KvLayout& layout) {
  if (layout.key_codec.kind != KvCodec::Kind::kFromValue) layout.key_codec = policy.key_codec;
  layout.value_codec = policy.value_codec;
  layout.dense_codec = policy.dense_codec;
  layout.dense_start = policy.dense_start;
  layout.dense_recent = policy.dense_recent;
}

Status ApplyBudget(const RetentionSpec& budget, int query_heads, size_t index, KvLayerSpec& layer) {
  KvLayout& layout = layer.layout;
  layer.retention = budget;
  layout.key_norms = UsesKeyNorms(budget.score);
  if (!NeedsQueries(budget.score)) return {};
  if (query_heads <= 0 || query_heads % layout.kv_heads != 0) {
    return InvalidLayer(index, "has " + std::to_string(layout.kv_heads) +
                                   " kv heads, which do not divide the model's " +
                                   std::to_string(query_heads) + " query heads; use keydiff");
  }
  const int64_t query_floats = int64_t{query_heads} * layout.key_dim;
  if (query_floats > std::numeric_limits<int>::max()) {
    return InvalidLayer(index, "has " + std::to_string(query_heads) + " query heads, too many of " +
                                   std::to_string(layout.key_dim) + " floats each");
  }
  const size_t pairs = static_cast<size_t>(layout.key_dim) / 2;
  if (budget.score == RowScore::kExpectedAttention && layer.inv_freq.size() != pairs) {
    return InvalidLayer(index, "has " + std::to_string(layer.inv_freq.size()) +
                                   " rotary frequencies and the score expected-attention needs " +
                                   std::to_string(pairs) + "; use keydiff");
  }
  layout.query_floats = static_cast<int>(query_floats);
  layout.observed_block = (budget.size + budget.interval) / kBlockTokens - 1;
  return {};
}

std::string CodecNames(const KvLayout& layout) {
  const std::string keys = layout.key_codec.name();
  const std::string values = layout.value_codec.name();
  return keys == values ? keys : "keys " + keys + ", values " + values;
}

// "0, 1 and 27" as "0,1,27"; runs as "0-5".
std::string IndexRanges(const std::vector<int>& indices) {
  std::string text;
  for (size_t begin = 0; begin < indices.size();) {
    size_t end = begin + 1;
    while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(indices[begin]);
    if (end - begin > 1) text.append("-").append(std::to_string(indices[end - 1]));
    begin = end;
  }
  return text;
}

// Every storage that occurs, with its layers, in order of first use: "affine4:64 (layers 2-26)".
std::string StorageOf(const KvCacheSpec& spec) {
  std::vector<std::pair<std::string, std::vector<int>>> storages;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!spec.layers[i].owns_rows()) continue;
    const std::string name = CodecNames(spec.layers[i].layout);
    auto known = std::find_if(storages.begin(), storages.end(),
                              [&](const auto& storage) { return storage.first == name; });
    if (known == storages.end()) known = storages.insert(known, {name, {}});
    known->second.push_back(static_cast<int>(i));
  }
  if (storages.size() == 1) return storages[0].first;
  std::string text;
  for (const auto& [name, layers] : storages) {
    if (!text.empty()) text += "; ";
    text.append(name).append(" (layers ").append(IndexRanges(layers)).append(")");
  }
  return text;
}

std::string Kibibytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f KiB", static_cast<double>(bytes) / 1024);
  return text;
}

// What recurrent layers add.
std::string States(const KvCacheSpec& spec, bool is_behind_rows) {
  size_t bytes = 0;
  int64_t layers = 0;
  for (const KvLayerSpec& layer : spec.layers) {
    bytes += layer.state_bytes;
    layers += layer.is_recurrent();
  }
  if (layers == 0) return "";
  return (is_behind_rows ? "; " : "") + Kibibytes(bytes) + " of states in " +
         std::to_string(layers) + (layers == 1 ? " layer" : " layers");
}

}  // namespace

int64_t RoundUpToBlocks(int64_t tokens) {
  KVASIR_CHECK(tokens >= 0 && tokens <= kMaxRetentionTokens);
  return BlocksUpTo(tokens) * kBlockTokens;
}

Status KvPolicy::Validate() const {
  if (!dense_codec.is_dense()) {
    return Invalid("what stays 16 bit cannot be stored as " + dense_codec.name() +
                   "; use f32, f16 or bf16");
  }
  for (const KvCodec& codec : {key_codec, value_codec}) {
    if (codec.is_dense() || codec.is_packed()) continue;
    return Invalid("the codec " + codec.name() +
                   " is a property of a model, not a choice; use a dense or packed one");
  }
  KVASIR_TRY_OK(ValidateBlocks("dense_start", dense_start));
  KVASIR_TRY_OK(ValidateBlocks("dense_recent", dense_recent));
  if (!packs() && (dense_start > 0 || dense_recent > 0)) {
    return Invalid("rows are to stay 16 bit, but nothing is quantized; choose a packed codec");
  }
  if (dense_layers != DenseLayers::kListed && !dense_layer_list.empty()) {
    return Invalid("dense_layer_list is set but not in use; set dense_layers to kListed");
  }
  if (budget) return ValidateBudget(*budget, packs() ? dense_recent : 0);
  if (!budget_skip_layers.empty()) {
    return Invalid("layers are to be left out of a budget, but there is none; set a budget");
  }
  return {};
}

Result<KvCacheSpec> KvPolicy::Apply(const KvCacheSpec& given, int query_heads) const {
  KVASIR_TRY_OK(Validate());
  KVASIR_TRY_OK(given.Validate());
  const KvCacheSpec dense = WithoutPolicy(given);
  KVASIR_TRY_OK(ValidateList("dense_layer_list (--kv-dense-layers)", dense_layer_list, dense));
  KVASIR_TRY_OK(
      ValidateList("budget_skip_layers (--kv-budget-skip-layers)", budget_skip_layers, dense));
  const std::vector<int> full = FullAttentionLayers(dense);
  if (budget && full.size() <= budget_skip_layers.size()) {
    return Invalid(
        "there is nothing to evict: no full-attention layer is left to the budget, and "
        "the other layers are bounded already; run without a budget");
  }
  const std::vector<int> dense_indices = DenseLayerIndices(*this, full);

  KvCacheSpec spec = dense;
  bool packed_any = false;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    KvLayerSpec& layer = spec.layers[i];
    if (layer.is_recurrent()) continue;
    if (!layer.owns_rows()) {
      const KvLayerSpec& owner = spec.layers[static_cast<size_t>(layer.shares_layer)];
      layer.layout = owner.layout;
      layer.retention = owner.retention;
      continue;
    }
    const bool is_full = IsFullAttention(layer);
    const bool stays_dense =
        is_full ? Contains(dense_indices, i) : window_layers == WindowLayers::kDense;
    if (!packs() || stays_dense) {
      StoreDense(*this, layer.layout);
    } else {
      StorePacked(*this, layer.layout);
      packed_any = true;
    }
    if (budget && is_full && !Contains(budget_skip_layers, i)) {
      KVASIR_TRY_OK(ApplyBudget(*budget, query_heads, i, layer));
    }
    KVASIR_TRY_OK(ValidateStorage(i, layer.layout));
  }
  if (packs() && !packed_any) {
    return Invalid(
        "there is nothing to quantize: every layer stays 16 bit; keep fewer of them "
        "(--kv-dense-layers none, --kv-window-layers packed) or run without quantization");
  }
  KVASIR_TRY_OK(spec.Validate());
  return spec;
}

std::string KvPolicy::Describe(const KvCacheSpec& spec) const {
  std::string text = StorageOf(spec);
  if (packs() && dense_start > 0) {
    text += "; first " + std::to_string(dense_start) + " rows " + dense_codec.name();
  }
  if (packs() && dense_recent > 0) {
    text += "; last " + std::to_string(dense_recent) + " rows also " + dense_codec.name();
  }
  if (budget) text += "; " + budget->name();
  for (size_t i = 0; budget && i < budget_skip_layers.size(); ++i) {
    text += (i == 0 ? " but in layers " : ", ") + std::to_string(budget_skip_layers[i]);
  }
  if (!text.empty()) text += "; " + Kibibytes(spec.TokenBytes()) + " per token";
  return text + States(spec, !text.empty());
}

}  // namespace kvasir
