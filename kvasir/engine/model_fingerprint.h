// What tells whether two runs compute the same bits: files of caches carry it.
// Deliberately what a model answers and not what its files hold: weights, the form they are kept
// in, the configuration, how rows are stored and the arithmetic all count, by what they come to.
// The bits of an answer are the same on every CPU (docs/numerics.md), and so is this.
#ifndef KVASIR_ENGINE_MODEL_FINGERPRINT_H_
#define KVASIR_ENGINE_MODEL_FINGERPRINT_H_

#include <string>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_policy.h"
#include "kvasir/model/model.h"

namespace kvasir {

// 16 hexadecimal digits: a checksum of the hidden states of a few tokens from all over the
// vocabulary, of the last one's logits, and of what no early position shows, with a cache as
// `policy` says but with every row that it packs packed at once. Changes that none of these tokens
// meets are not seen: rows of an embedding that is not the head as well, experts that nobody chose.
// Takes as long as reading these few tokens, and memory for them beside all pools.
// ERRORS: as Model::Forward.
// THREADS: runs the model, so nobody else may meanwhile.
Result<std::string> FingerprintOf(const Model& model, const KvPolicy& policy);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_MODEL_FINGERPRINT_H_
