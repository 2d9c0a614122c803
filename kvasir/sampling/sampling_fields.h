// The sampling fields of a request beyond OpenAI's, under llama-server's names.
// Deliberately only types and lists: SamplingOptions::Validate knows the ranges.
#ifndef KVASIR_SAMPLING_SAMPLING_FIELDS_H_
#define KVASIR_SAMPLING_SAMPLING_FIELDS_H_

#include <cstddef>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

inline constexpr size_t kMaxDryBreakers = 16;

// Reads repeat_last_n, typical_p, top_n_sigma (below 0: off), dynatemp_*, xtc_*, dry_*, mirostat*
// and samplers; what is missing or null stays as it is in `options`.
// ERRORS: kCorrupt for wrong types, kInvalidArgument; the message names the field.
Status ReadSamplingFields(const Json& body, SamplingOptions* options);

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_SAMPLING_FIELDS_H_
