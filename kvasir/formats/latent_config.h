// What a config says of models in the manner of DeepSeek: multi-head latent attention, and experts
// in groups beside a shared one. Deliberately beside layer_config.h: these fields are no other
// family's.
#ifndef KVASIR_FORMATS_LATENT_CONFIG_H_
#define KVASIR_FORMATS_LATENT_CONFIG_H_

#include "kvasir/base/result.h"
#include "kvasir/formats/config_defaults.h"
#include "kvasir/formats/config_reader.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// These read on where `model` has its sizes and layer kinds. ERRORS: as ModelConfig::Parse.
// DeepSeek-V2 and V3, GLM-4.7-Flash, Youtu: latent attention, and experts where there are some.
Status ReadDeepSeek(const ConfigReader& reader, const ConfigDefaults& defaults, ModelConfig* model);
// GLM-4.5 to 4.7: experts, and whether heads have norms.
Status ReadGlm4Experts(const ConfigReader& reader, ModelConfig* model);

// query_pre_attn_scalar of latent attention, whose heads are those before their projection to
// latents. REQUIRES: model has its rope.
double LatentScalar(const ModelConfig& model);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_LATENT_CONFIG_H_
