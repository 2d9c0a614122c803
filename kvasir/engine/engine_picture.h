// EnginePicture: what an engine's cache holds and has done, as of the end of one step.
// Deliberately only counts and structure, nobody's tokens or text.
#ifndef KVASIR_ENGINE_ENGINE_PICTURE_H_
#define KVASIR_ENGINE_ENGINE_PICTURE_H_

#include <cstddef>

#include "kvasir/engine/engine.h"
#include "kvasir/kv/cache_picture.h"

namespace kvasir {

struct EnginePicture {
  EngineClock::time_point made_at;
  CachePicture cache;  // ids of running sequences: of their requests
  EngineStats stats;   // used_bytes is of all blocks in use
  size_t budget_bytes = 0;
  size_t reserved_bytes = 0;  // of the system's memory, free blocks included
  size_t live_bytes = 0;      // of used_bytes: what running answers hold
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_PICTURE_H_
