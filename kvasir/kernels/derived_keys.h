// DeriveKeyTile (tensor/derived_key.h) in SIMD, with its bits: attention over layers whose keys are
// not stored makes a block's keys anew for every query, so it must not cost more than reading them.
// Deliberately beside KernelTable: scalar code is the oracle itself.
#ifndef KVASIR_KERNELS_DERIVED_KEYS_H_
#define KVASIR_KERNELS_DERIVED_KEYS_H_

#include <cstddef>
#include <span>

#include "kvasir/kernels/kernels.h"
#include "kvasir/tensor/derived_key.h"

namespace kvasir {

struct DeriveKeysArgs {
  KvKeyDerivation derivation;
  const KvBlockLayout* layout = nullptr;
  const std::byte* values = nullptr;                  // one head of the value plane
  std::span<const Position, kBlockTokens> positions;  // of the slots
  int begin = 0;                                      // slots [begin, end) become keys, others 0
  int end = 0;
  float* tile = nullptr;  // out: [key_dim][64]
};

// REQUIRES: isa is one of SupportedIsas().
void DeriveKeys(Isa isa, const DeriveKeysArgs& args);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_DERIVED_KEYS_H_
