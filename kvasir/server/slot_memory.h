// SlotMemory: which conversation each slot held last, for those who save slots to files.
// Deliberately tokens only: what is cached of them is the prefix tree's business, and a slot is no
// place where anything happens.
#ifndef KVASIR_SERVER_SLOT_MEMORY_H_
#define KVASIR_SERVER_SLOT_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kvasir/engine/prefix_cache_file.h"

namespace kvasir {

// THREADS: any.
class SlotMemory {
 public:
  explicit SlotMemory(int64_t slots) : slots_(static_cast<size_t>(slots)) {}

  // Into the slot of that number; without one, or with one that does not exist, into the slot that
  // was used least recently.
  void Keep(std::optional<int64_t> number, SavedConversation conversation) {
    const std::lock_guard lock(mutex_);
    Slot* slot = number ? Find(*number) : nullptr;
    if (slot == nullptr) {
      slot = &*std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
        return a.last_used < b.last_used;
      });
    }
    *slot = {std::move(conversation), ++clock_};
  }
  // None if there is no such slot or nothing was said there.
  std::optional<SavedConversation> Get(int64_t number) {
    const std::lock_guard lock(mutex_);
    const Slot* slot = Find(number);
    if (slot == nullptr || slot->last_used == 0) return std::nullopt;
    return slot->conversation;
  }
  // The tokens that were forgotten.
  int64_t Erase(int64_t number) {
    const std::lock_guard lock(mutex_);
    Slot* slot = Find(number);
    if (slot == nullptr) return 0;
    const auto tokens = static_cast<int64_t>(slot->conversation.tokens.size());
    *slot = {};
    return tokens;
  }
  bool Has(int64_t number) const {
    return number >= 0 && number < static_cast<int64_t>(slots_.size());
  }

 private:
  struct Slot {
    SavedConversation conversation;
    uint64_t last_used = 0;  // 0: never
  };
  Slot* Find(int64_t number) {
    return Has(number) ? &slots_[static_cast<size_t>(number)] : nullptr;
  }

  std::mutex mutex_;
  std::vector<Slot> slots_;  // never empty
  uint64_t clock_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_SLOT_MEMORY_H_
