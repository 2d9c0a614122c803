#include "kvasir/server/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace kvasir {

// REQUIRES: mutex_ is held.
std::shared_ptr<GrammarMasks> GrammarCache::Find(const std::string& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().masks;
}

Result<std::shared_ptr<GrammarMasks>> GrammarCache::Get(const std::string& key,
                                                        const Build& build) {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  {
    const std::lock_guard lock(mutex_);
    if (auto masks = Find(key)) return masks;
    if (vocabulary_ == nullptr) {
      vocabulary_ = std::make_shared<const GrammarVocabulary>(
          GrammarVocabulary::FromTokenizer(*tokenizer_, end_tokens_, markers_));
    }
    vocabulary = vocabulary_;
  }
  KVASIR_TRY(std::shared_ptr<const Grammar> grammar, build());
  auto masks = std::make_shared<GrammarMasks>(std::move(grammar), std::move(vocabulary),
                                              options_.masks_bytes);
  const std::lock_guard lock(mutex_);
  if (auto meanwhile = Find(key)) return meanwhile;
  entries_.push_front({key, masks});
  if (entries_.size() > options_.max_grammars) entries_.pop_back();
  return masks;
}

size_t GrammarCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace kvasir
