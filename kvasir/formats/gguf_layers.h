// What differs from layer to layer in a GGUF file's metadata: windows, experts, and what Gemma 4
// varies; as members of a config.json.
// Deliberately no checks of ranges: ModelConfig::Parse has them.
#ifndef KVASIR_FORMATS_GGUF_LAYERS_H_
#define KVASIR_FORMATS_GGUF_LAYERS_H_

#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf.h"

namespace kvasir {

// Values of expert_gating_func.
inline constexpr int64_t kGgufSoftmaxGating = 1;
inline constexpr int64_t kGgufSigmoidGating = 2;

// A file's metadata under the prefix of its architecture.
struct GgufKeys {
  const GgufMetadata& metadata;
  const std::string& architecture;

  std::string Key(std::string_view name) const { return architecture + "." + std::string(name); }
  // The integer of a key, or the same one for every layer, becomes a member of `config`.
  // ERRORS: kCorrupt when it is missing, kUnsupported when layers differ.
  Status CopyInt(std::string_view name, std::string_view field, Json* config) const;
};

// The size of a head, which a file may leave to hidden size and heads. `config` has those.
// ERRORS: kCorrupt.
Result<int64_t> GgufHeadDim(const GgufKeys& keys, const Json& config);
// `config`'s number of layers, bounded as ModelConfig::Parse will, so that nothing large is
// allocated by it. ERRORS: kCorrupt.
Result<size_t> GgufLayerCount(const Json& config);
// Whether any layer has the tensor.
bool AnyGgufLayerHas(const GgufFile& file, size_t layers, const std::string& part);
// Blocks that only draft tokens come last and count as layers: no longer. ERRORS: kCorrupt.
Status DropGgufDraftBlocks(const GgufKeys& keys, Json* config);
// The sliding window and which layers have it (Gemma 2, 3, 4, OLMo 3). ERRORS: kCorrupt.
Status AddGgufWindow(const GgufKeys& keys, Json* config);
// How much of a head turns, where a family turns but its first elements. ERRORS: kCorrupt.
Status AddGgufRotatedPart(const GgufKeys& keys, int64_t head_dim, Json* config);
// Qwen3-MoE: which layers have experts, the tensors say. ERRORS: kCorrupt.
Status AddGgufQwenExperts(const GgufKeys& keys, const GgufFile& file, Json* config);
// Qwen3.5 and Qwen3-Next: heads, delta nets, which layers have them, rope's part of a head,
// experts, and of Next which layers have them; blocks that draft are not counted. ERRORS: kCorrupt.
Status AddGgufQwen35(const GgufKeys& keys, const GgufFile& file, Json* config);
// The window and the experts of gpt-oss. ERRORS: kCorrupt.
Status AddGgufGptOss(const GgufKeys& keys, Json* config);
// LFM2: heads, short convolutions, which layers have them, experts. `config` has its other members.
// ERRORS: kCorrupt, kUnsupported.
Status AddGgufLfm2(const GgufKeys& keys, const GgufFile& file, Json* config);
// Granite 4's hybrids: heads, Mamba-2, which layers have it, experts. Likewise.
Status AddGgufGraniteHybrid(const GgufKeys& keys, const GgufFile& file, Json* config);
// Gemma 4: sizes of layers, shared keys, per-layer embeddings, experts. `config` has its other
// members. ERRORS: kCorrupt, kUnsupported for layers that differ in other ways.
Status AddGgufGemma4(const GgufKeys& keys, const GgufFile& file, Json* config);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_LAYERS_H_
