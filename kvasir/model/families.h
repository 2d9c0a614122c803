// The decoder families: one small file each turns a config into a DecoderSpec.
// Deliberately an explicit list (families.cc), not a registry that fills itself.
#ifndef KVASIR_MODEL_FAMILIES_H_
#define KVASIR_MODEL_FAMILIES_H_

#include <string>
#include <vector>

#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/model/decoder_spec.h"

namespace kvasir {

// Llama 3.x; Mistral as a Llama with a window; Ministral 3, SmolLM3 and Granite
// (family_llama.cc).
DecoderSpec LlamaSpec(const ModelConfig& config);
// Qwen2, Qwen2.5 and Qwen3, dense and with experts (family_qwen.cc).
DecoderSpec QwenSpec(const ModelConfig& config);
// Gemma 2 and Gemma 3, text (family_gemma3.cc).
DecoderSpec Gemma2Spec(const ModelConfig& config);
DecoderSpec Gemma3Spec(const ModelConfig& config);
// Gemma 4, text: all sizes (family_gemma4.cc).
DecoderSpec Gemma4Spec(const ModelConfig& config);

// Qwen3.5, 3.6 and Qwen3-Next (family_qwen35.cc).
DecoderSpec Qwen35Spec(const ModelConfig& config);
// gpt-oss (family_gpt_oss.cc).
DecoderSpec GptOssSpec(const ModelConfig& config);
// OLMo 2 and 3 (family_olmo.cc).
DecoderSpec OlmoSpec(const ModelConfig& config);
// Phi-3 and Phi-4 (family_phi3.cc).
DecoderSpec Phi3Spec(const ModelConfig& config);
// LFM2 and LFM2.5, dense and with experts (family_lfm2.cc).
DecoderSpec Lfm2Spec(const ModelConfig& config);

// DeepSeek-V2 and V3, GLM-4.7-Flash, Youtu (family_deepseek.cc).
DecoderSpec DeepSeekSpec(const ModelConfig& config);
// GLM-4 and GLM-4.5 to 4.7 (family_glm4.cc).
DecoderSpec Glm4Spec(const ModelConfig& config);

// The spec of whichever family the config names.
DecoderSpec MakeDecoderSpec(const ModelConfig& config);

// What every family has in common: sizes, softcaps, and per layer its window and its rope.
DecoderSpec CommonSpec(const ModelConfig& config);

// Whether norms that are stored around 0 have their 1 in this checkpoint: MLX adds it to those of
// models with delta nets, and has the taps of a convolution before its one input, where others have
// them behind it.
bool HoldsNormOffset(const ModelConfig& config, const Checkpoint& checkpoint);

// True for tensors that checkpoints carry and no decoder reads: rotary tables, the k and v of a
// layer that shares another's, parts of a multimodal wrapper. `name` is as in the checkpoint.
bool IsKnownUnused(const DecoderSpec& spec, const std::string& name);

}  // namespace kvasir

#endif  // KVASIR_MODEL_FAMILIES_H_
