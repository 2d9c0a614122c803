// SlotMemory: which conversation each slot held last, for those who save slots to files.
// Deliberately tokens only: what is cached of them is the prefix tree's business, and a slot is no
// place where anything happens.
#ifndef KVASIR_SERVER_SLOT_MEMORY_H_
#define KVASIR_SERVER_SLOT_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kvasir/engine/prefix_cache_file.h"
#include "kvasir/server/completion_service.h"

namespace kvasir {

// Every salt has slots of its own, and sees nobody else's. A tenant keeps as many conversations as
// there are slots, whatever the salts: more push out its own, the one used least recently first.
// THREADS: any.
class SlotMemory {
 public:
  // REQUIRES: slots > 0.
  explicit SlotMemory(int64_t slots) : slots_(slots) {}

  // Into the slot of that number; without one, or with one that does not exist, into the slot of
  // this salt that was used least recently.
  void Keep(uint64_t tenant, std::optional<int64_t> number, SavedConversation conversation) {
    const std::lock_guard lock(mutex_);
    std::vector<Slot>& kept = tenants_[tenant];
    const uint64_t salt = conversation.salt;
    const int64_t place = number && Has(*number) ? *number : LeastRecent(kept, salt);
    std::erase_if(kept, [&](const Slot& slot) { return slot.Is(salt, place); });
    if (static_cast<int64_t>(kept.size()) == slots_) kept.erase(kept.begin());
    kept.push_back({place, std::move(conversation)});
  }
  // None if there is no such slot or nothing was said there.
  std::optional<SavedConversation> Get(const SlotAddress& address) const {
    const std::lock_guard lock(mutex_);
    const auto tenant = tenants_.find(address.tenant);
    if (tenant == tenants_.end()) return std::nullopt;
    for (const Slot& slot : tenant->second) {
      if (slot.Is(address.salt, address.number)) return slot.conversation;
    }
    return std::nullopt;
  }
  // The tokens that were forgotten.
  int64_t Erase(const SlotAddress& address) {
    const std::lock_guard lock(mutex_);
    const auto tenant = tenants_.find(address.tenant);
    int64_t tokens = 0;
    if (tenant == tenants_.end()) return tokens;
    std::erase_if(tenant->second, [&](const Slot& slot) {
      if (!slot.Is(address.salt, address.number)) return false;
      tokens += static_cast<int64_t>(slot.conversation.tokens.size());
      return true;
    });
    return tokens;
  }
  bool Has(int64_t number) const { return number >= 0 && number < slots_; }

 private:
  struct Slot {
    int64_t number = 0;
    SavedConversation conversation;

    bool Is(uint64_t salt, int64_t wanted) const {
      return number == wanted && conversation.salt == salt;
    }
  };

  // Never used ones first.
  int64_t LeastRecent(const std::vector<Slot>& kept, uint64_t salt) const {
    std::vector<int64_t> used;
    for (const Slot& slot : kept) {
      if (slot.conversation.salt == salt) used.push_back(slot.number);
    }
    for (int64_t number = 0; number < slots_; ++number) {
      if (std::find(used.begin(), used.end(), number) == used.end()) return number;
    }
    return used.front();
  }

  const int64_t slots_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::vector<Slot>> tenants_;  // of each the latest used last
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_SLOT_MEMORY_H_
