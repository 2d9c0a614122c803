// ModelConfig: the shape of a model, read from the config.json of a checkpoint folder.
// Deliberately no weights and no graph: every field is checked and resolved here, so that whoever
// builds a model sees one form, whichever generation of config file it came from.
#ifndef KVASIR_FORMATS_MODEL_CONFIG_H_
#define KVASIR_FORMATS_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/formats/generation_config.h"
#include "kvasir/formats/mlx_quantization.h"
#include "kvasir/formats/rope_config.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

// kLlama also stands for Mistral: the same graph, every layer sliding when it has a window.
enum class ModelFamily { kLlama, kQwen2, kQwen3, kGemma3 };
std::string_view ModelFamilyName(ModelFamily family);  // "llama", ...

enum class Activation { kSilu, kGeluTanh };
std::string_view ActivationName(Activation activation);  // "silu", "gelu_tanh"

// kSliding: key j is visible to query i iff i - sliding_window < j <= i.
enum class LayerKind { kFull, kSliding };

// Numbers of weights.
struct ParameterCounts {
  int64_t embedding = 0;
  int64_t attention = 0;  // all layers: q, k, v, o and their biases
  int64_t mlp = 0;        // all layers
  int64_t norms = 0;      // all layers, q and k norms and the final one
  int64_t output = 0;     // 0 when tied to the embedding

  int64_t total() const { return embedding + attention + mlp + norms + output; }
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::string architecture;  // as the file names it, e.g. "LlamaForCausalLM"

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;  // divides num_attention_heads
  int head_dim = 0;             // even; heads * head_dim may differ from hidden_size
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  Activation activation = Activation::kSilu;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's o_proj
  bool mlp_bias = false;
  // Norm weights are stored as they multiply, also where the family stores them around 0: GGUF.
  bool norms_hold_offset = false;

  // One per layer.
  std::vector<LayerKind> layer_kinds;
  int64_t sliding_window =
      0;  // keys a sliding layer sees, the query's own included; 0: none slides
  RopeConfig rope_full;
  RopeConfig rope_sliding;  // equal to rope_full where the family makes no difference

  // Scores are multiplied by query_pre_attn_scalar^-0.5; head_dim unless the family says otherwise.
  double query_pre_attn_scalar = 0.0;
  double attn_logit_softcapping = 0.0;   // c: scores become c tanh(score / c); 0: off
  double final_logit_softcapping = 0.0;  // the same for logits; 0: off

  std::vector<Token> eos_token_ids;  // generation_config.json wins over config.json; may be empty
  std::optional<Token> bos_token_id;
  std::optional<Token> pad_token_id;
  // Set for checkpoints that MLX quantized.
  std::optional<MlxQuantization> quantization;
  std::optional<DType> dtype;   // what the file says the weights are; the tensors decide
  GenerationConfig generation;  // all absent without generation_config.json

  // Reads `folder`/config.json and, if it exists, `folder`/generation_config.json.
  // ERRORS: as Parse, and kNotFound, kIo; the message begins with the file's path.
  static Result<ModelConfig> Load(const std::string& folder);
  // ERRORS: kCorrupt for a field that is missing, of a wrong type or out of range; kUnsupported for
  // what this build cannot run. The message names the field. Nothing is allocated by its numbers
  // before they are checked.
  static Result<ModelConfig> Parse(const Json& config);

  const RopeConfig& rope(LayerKind kind) const {
    return kind == LayerKind::kFull ? rope_full : rope_sliding;
  }
  // Per-head RMS norms on queries and keys.
  bool has_qk_norm() const {
    return family == ModelFamily::kQwen3 || family == ModelFamily::kGemma3;
  }
  ParameterCounts CountParameters() const;
  int64_t ParameterCount() const { return CountParameters().total(); }
  // Elements of K and V that one token adds over all layers (times bytes per element is its size).
  int64_t KvElementsPerToken() const;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_MODEL_CONFIG_H_
