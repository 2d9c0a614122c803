#include "kvasir/speculative/ngram_index.h"

#include <algorithm>
#include <string>

namespace kvasir {

Status NgramOptions::Validate() const {
  if (min_match < 1 || min_match > max_match) {
    return {ErrorCode::kInvalidArgument,
            "n-gram drafts: a match of " + std::to_string(min_match) + " to " +
                std::to_string(max_match) + " tokens; the first must be at least 1 and not larger"};
  }
  if (max_places >= 1) return {};
  return {ErrorCode::kInvalidArgument,
          "n-gram drafts: max_places is " + std::to_string(max_places) + ", it must be at least 1"};
}

void NgramIndex::Append(Token token) {
  // The end before this token: what follows it is known now.
  const auto end = static_cast<int64_t>(tokens_.size());
  if (tokens_.size() >= latest_.size()) Grow();
  earlier_.push_back(0);
  if (end >= options_.min_match) Enter(end);
  tokens_.push_back(token);
}

// Of the n-gram before `end`.
size_t NgramIndex::Slot(int64_t end) const {
  uint64_t hash = 0;
  for (int64_t i = end - options_.min_match; i < end; ++i) {
    hash =
        (hash + static_cast<uint64_t>(tokens_[static_cast<size_t>(i)]) + 1) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash) & (latest_.size() - 1);
}

void NgramIndex::Enter(int64_t end) {
  int32_t& latest = latest_[Slot(end)];
  earlier_[static_cast<size_t>(end)] = latest;
  latest = static_cast<int32_t>(end);
}

void NgramIndex::Grow() {
  latest_.assign(std::max<size_t>(256, 2 * latest_.size()), 0);
  for (int64_t end = options_.min_match; end < static_cast<int64_t>(tokens_.size()); ++end) {
    Enter(end);
  }
}

NgramIndex::Match NgramIndex::Find() const {
  const auto size = static_cast<int64_t>(tokens_.size());
  Match best;
  if (size <= options_.min_match) return best;
  const auto at = [this](int64_t i) { return tokens_[static_cast<size_t>(i)]; };
  int64_t end = latest_[Slot(size)];
  for (int64_t place = 0; end > 0 && place < options_.max_places; ++place) {
    const int64_t most = std::min(options_.max_match, end);
    // Whoever is longer agrees where the best one so far ends too.
    if (most > best.length && at(end - 1 - best.length) == at(size - 1 - best.length)) {
      int64_t length = 0;
      while (length < most && at(end - 1 - length) == at(size - 1 - length)) ++length;
      if (length >= options_.min_match && length > best.length) best = {end, length};
      if (best.length == options_.max_match) break;
    }
    end = earlier_[static_cast<size_t>(end)];
  }
  return best;
}

std::vector<Token> NgramIndex::Continue(const Match& match, int64_t count) const {
  std::vector<Token> found;
  found.reserve(static_cast<size_t>(count));
  const auto known = static_cast<int64_t>(tokens_.size());
  for (int64_t at = match.end; static_cast<int64_t>(found.size()) < count; ++at) {
    found.push_back(at < known ? tokens_[static_cast<size_t>(at)]
                               : found[static_cast<size_t>(at - known)]);
  }
  return found;
}

}  // namespace kvasir
