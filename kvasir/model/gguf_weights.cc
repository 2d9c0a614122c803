// Weights of a GGUF file under the names that a decoder asks for.
// Deliberately undoes what converters do to llama's queries and keys, so that there is one RoPE.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "kvasir/model/stored_weights.h"

namespace kvasir {
namespace {

struct Renaming {
  std::string_view decoder;
  std::string_view gguf;
};
constexpr std::array<Renaming, 13> kLayerParts = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
}};

// Element `row` of a head's rows as the decoder wants them: pairs (i, i + head_dim / 2) turn
// together. Llama files have them beside each other.
int64_t InterleavedRow(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  const int64_t half = head_dim / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

class GgufWeights final : public StoredWeights {
 public:
  GgufWeights(const GgufFile& file, const ModelConfig& config, Backend& backend,
              std::optional<WeightFormat> format)
      : StoredWeights(backend, format),
        file_(file),
        family_(config.family),
        head_dim_(config.head_dim) {
    used_.insert("rope_freqs.weight");  // part of the config
  }

  bool Has(const std::string& name) const override { return file_.Find(FileName(name)) != nullptr; }

  std::vector<std::string> Unused() const override {
    std::vector<std::string> unused;
    for (const std::string& name : file_.names()) {
      if (!used_.contains(name)) unused.push_back(name);
    }
    return unused;
  }

 protected:
  Result<WeightTensor> Take(const std::string& name, const std::vector<int64_t>& shape) override {
    const std::string file_name = FileName(name);
    KVASIR_TRY(WeightTensor tensor, file_.Get(file_name, shape));
    used_.insert(file_name);
    const bool turns =
        name.find(".q_proj.") != std::string::npos || name.find(".k_proj.") != std::string::npos;
    if (!turns || family_ != ModelFamily::kLlama) return tensor;
    return shape.size() == 2 ? InDecoderOrder(std::move(tensor)) : BiasInDecoderOrder(tensor);
  }

  std::string Where(const std::string& name) const override {
    return file_.path() + ": tensor '" + FileName(name) + "'";
  }

 private:
  WeightTensor InDecoderOrder(WeightTensor tensor) const {
    const int64_t head_dim = head_dim_;
    tensor.read_row = [head_dim, stored = std::move(tensor.read_row)](int64_t row, float* out) {
      stored(InterleavedRow(row, head_dim), out);
    };
    if (tensor.read_codes) {
      tensor.read_codes = [head_dim, stored = std::move(tensor.read_codes)](int64_t row,
                                                                            CodedRow* out) {
        stored(InterleavedRow(row, head_dim), out);
      };
    }
    tensor.is_raw = false;
    return tensor;
  }

  WeightTensor BiasInDecoderOrder(const WeightTensor& tensor) const {
    std::vector<float> stored(static_cast<size_t>(tensor.shape[0]));
    tensor.read_row(0, stored.data());
    const int64_t head_dim = head_dim_;
    WeightTensor ordered = tensor;
    ordered.read_row = [head_dim, stored](int64_t, float* out) {
      for (size_t i = 0; i < stored.size(); ++i) {
        out[i] = stored[static_cast<size_t>(InterleavedRow(static_cast<int64_t>(i), head_dim))];
      }
    };
    return ordered;
  }

  // "layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight".
  std::string FileName(const std::string& name) const {
    if (name == "embed_tokens.weight") return "token_embd.weight";
    if (name == "norm.weight") return "output_norm.weight";
    if (name == "lm_head.weight") return "output.weight";
    constexpr std::string_view kLayers = "layers.";
    const size_t number_end = name.find('.', kLayers.size());
    const size_t suffix = name.rfind('.');
    if (!name.starts_with(kLayers) || number_end >= suffix) return name;
    const std::string_view part =
        std::string_view(name).substr(number_end + 1, suffix - number_end - 1);
    std::string_view renamed = part;
    for (const Renaming& renaming : kLayerParts) {
      if (renaming.decoder == part) renamed = renaming.gguf;
    }
    // The norm before the MLP, which is the one after attention in families with two norms.
    if (family_ != ModelFamily::kGemma3 && part == "post_attention_layernorm") renamed = "ffn_norm";
    return "blk." + name.substr(kLayers.size(), number_end - kLayers.size()) + "." +
           std::string(renamed) + name.substr(suffix);
  }

  const GgufFile& file_;
  const ModelFamily family_;
  const int64_t head_dim_;
  std::unordered_set<std::string> used_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeGgufWeights(const GgufFile& file, const ModelConfig& config,
                                              Backend& backend,
                                              std::optional<WeightFormat> format) {
  return std::make_unique<GgufWeights>(file, config, backend, format);
}

std::unique_ptr<StoredWeights> MakeGgufTensors(const GgufFile& file, const ModelConfig& config,
                                               Backend& backend) {
  return std::make_unique<GgufWeights>(file, config, backend, std::nullopt);
}

}  // namespace kvasir
