// Largest sizes that configs may name.
// Deliberately far above any published model, and low enough that no product of them overflows 63
// bits and nothing is allocated by a number in a hostile file.
#ifndef KVASIR_FORMATS_CONFIG_LIMITS_H_
#define KVASIR_FORMATS_CONFIG_LIMITS_H_

#include <cstdint>

namespace kvasir {

inline constexpr int64_t kMaxHidden = 1 << 17;
inline constexpr int64_t kMaxIntermediate = 1 << 20;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxVocabulary = 1 << 22;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;
inline constexpr int64_t kMaxExperts = 1 << 12;
inline constexpr int64_t kMaxPerLayerSize = 1 << 12;
inline constexpr int64_t kMaxConvWidth = 64;

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CONFIG_LIMITS_H_
