// The states of recurrent layers: the current one, and those of chosen earlier positions.
// Deliberately only references to blocks: a state is copied when somebody else holds it and it is
// about to change, never to be kept.
#ifndef KVASIR_KV_RECURRENT_STATES_H_
#define KVASIR_KV_RECURRENT_STATES_H_

#include <string>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_block.h"

namespace kvasir {

struct RecurrentStates {
  struct Checkpoint {
    Position position = 0;
    std::vector<BlockRef> blocks;
  };

  // One block per recurrent layer of the spec, in order. Empty: all zero, as at position 0 (in a
  // snapshot that ends later: not held).
  std::vector<BlockRef> current;
  std::vector<Checkpoint> checkpoints;  // positions above 0, ascending

  // Null if there is none.
  const Checkpoint* CheckpointAt(Position position) const {
    for (const Checkpoint& checkpoint : checkpoints) {
      if (checkpoint.position == position) return &checkpoint;
    }
    return nullptr;
  }
  // The checkpoints within [begin, end].
  std::vector<Checkpoint> CheckpointsWithin(Position begin, Position end) const {
    std::vector<Checkpoint> within;
    for (const Checkpoint& checkpoint : checkpoints) {
      if (checkpoint.position >= begin && checkpoint.position <= end) within.push_back(checkpoint);
    }
    return within;
  }
  // "checkpoints: 64, 128", for messages.
  std::string Names() const {
    std::string names;
    for (const Checkpoint& checkpoint : checkpoints) {
      names += (names.empty() ? "checkpoints: " : ", ") + std::to_string(checkpoint.position);
    }
    return names.empty() ? "no checkpoints" : names;
  }
};

}  // namespace kvasir

#endif  // KVASIR_KV_RECURRENT_STATES_H_
