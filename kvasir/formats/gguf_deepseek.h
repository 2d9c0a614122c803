// A GGUF file's metadata of models in the manner of DeepSeek, as members of a config.json: latent
// attention, and experts in groups beside a shared one.
// Deliberately no checks of ranges: ModelConfig::Parse has them.
#ifndef KVASIR_FORMATS_GGUF_DEEPSEEK_H_
#define KVASIR_FORMATS_GGUF_DEEPSEEK_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_layers.h"

namespace kvasir {

// deepseek2: DeepSeek-V2, V3, GLM-4.7-Flash and Youtu. Which of them a file is, its router says:
// one of V2 has a softmax, all others are as V3. ERRORS: kCorrupt, kUnsupported.
Status AddGgufDeepSeek(const GgufKeys& keys, const GgufFile& file, Json* config);
// glm4: heads and how much of them turns. ERRORS: kCorrupt, kUnsupported.
Status AddGgufGlm4(const GgufKeys& keys, Json* config);
// glm4moe: the same, and experts. Likewise.
Status AddGgufGlm4Moe(const GgufKeys& keys, const GgufFile& file, Json* config);

// mscale and mscale_all_dim of yarn, which a deepseek2 file has one number for.
Status AddGgufYarnScales(const GgufKeys& keys, Json* scaling);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_DEEPSEEK_H_
