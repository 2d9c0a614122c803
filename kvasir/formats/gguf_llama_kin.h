// What GGUF files of models much like Llama say besides: Granite, Ministral 3, OLMo 2 and 3, Phi-3.
// Deliberately without sizes and plain ropes, which gguf_config.cc reads alike for all.
#ifndef KVASIR_FORMATS_GGUF_LLAMA_KIN_H_
#define KVASIR_FORMATS_GGUF_LLAMA_KIN_H_

#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_layers.h"

namespace kvasir {

inline constexpr std::string_view kGgufLongDivisors = "rope_factors_long.weight";
inline constexpr std::string_view kGgufShortDivisors = "rope_factors_short.weight";

// Factors on embeddings, residuals, scores and logits. `config` has head_dim. ERRORS: kCorrupt.
Status AddGgufGranite(const GgufKeys& keys, Json* config);
// Experts, and the MLP that every token goes through. ERRORS: kCorrupt.
Status AddGgufGraniteExperts(const GgufKeys& keys, Json* config);
// With a window the file is of OLMo 3, whose sliding layers have a rope that is not scaled.
// ERRORS: kCorrupt, kUnsupported where that rope has a base of its own.
Status AddGgufOlmo(const GgufKeys& keys, Json* config);
// The window, and which part of a head turns. `config` has head_dim. ERRORS: kCorrupt.
Status AddGgufPhi3(const GgufKeys& keys, Json* config);
// longrope's two lists where a file has their tensors, for heads of which `rotated` elements turn;
// null where it has none. ERRORS: kCorrupt.
Result<Json> GgufLongRope(const GgufFile& file, int64_t rotated);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_LLAMA_KIN_H_
