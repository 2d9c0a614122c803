// DeriveKeyTile (tensor/derived_key.h) in SIMD, with its bits, or those rounded to f16: attention
// over layers whose keys are not stored makes a block's keys anew for every tile of queries.
// Deliberately beside KernelTable: scalar code is the oracle itself.
#ifndef KVASIR_KERNELS_DERIVED_KEYS_H_
#define KVASIR_KERNELS_DERIVED_KEYS_H_

#include <cstddef>
#include <span>

#include "kvasir/kernels/kernels.h"
#include "kvasir/tensor/derived_key.h"

namespace kvasir {

// The sines and cosines that turn a block's keys, the same for all of its heads: of every pair that
// turns [sine, cosine][64].
size_t KeyTurnFloats(const KvKeyDerivation& derivation);
// `turns`: KeyTurnFloats, aligned to 64 bytes. REQUIRES: isa is one of SupportedIsas().
void MakeKeyTurns(Isa isa, const KvKeyDerivation& derivation,
                  std::span<const Position, kBlockTokens> positions, float* turns);

struct DeriveKeysArgs {
  KvKeyDerivation derivation;
  const KvBlockLayout* layout = nullptr;
  const std::byte* values = nullptr;                  // one head of the value plane
  std::span<const Position, kBlockTokens> positions;  // of the slots
  const float* turns = nullptr;                       // what MakeKeyTurns made for them
  int begin = 0;                                      // slots [begin, end) become keys, others 0
  int end = 0;
  KvCodec codec;             // of the keys: f32 or f16
  std::byte* out = nullptr;  // a plane of one head, aligned to 64 bytes
};

// REQUIRES: isa is one of SupportedIsas().
void DeriveKeys(Isa isa, const DeriveKeysArgs& args);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_DERIVED_KEYS_H_
