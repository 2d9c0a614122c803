// RunningAnswers: the answers being made, by the ids that their clients know, so that one can be
// ended from another connection.
// Deliberately no list of what has ended: nothing is stored.
#ifndef KVASIR_SERVER_RUNNING_ANSWERS_H_
#define KVASIR_SERVER_RUNNING_ANSWERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace kvasir {

// THREADS: any number at once.
class RunningAnswers {
 public:
  // True once somebody has cancelled the answer.
  using Flag = std::shared_ptr<const std::atomic<bool>>;

  // The answer counts as running as long as somebody else holds the flag. `tenant`: whose it is,
  // who alone may cancel it.
  Flag Add(const std::string& id, uint64_t tenant) {
    const auto flag = std::make_shared<std::atomic<bool>>(false);
    const std::lock_guard lock(mutex_);
    std::erase_if(flags_, [](const auto& entry) { return entry.second.expired(); });
    flags_[Key(id, tenant)] = flag;
    return flag;
  }
  // False if no such answer of theirs is running.
  bool Cancel(const std::string& id, uint64_t tenant) {
    const std::lock_guard lock(mutex_);
    const auto found = flags_.find(Key(id, tenant));
    const auto flag = found == flags_.end() ? nullptr : found->second.lock();
    if (flag != nullptr) *flag = true;
    return flag != nullptr;
  }

 private:
  static std::string Key(const std::string& id, uint64_t tenant) {
    return std::to_string(tenant) + " " + id;
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<std::atomic<bool>>> flags_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_RUNNING_ANSWERS_H_
