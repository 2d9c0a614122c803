#include "kvasir/kv/kv_batch.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

namespace kvasir {
namespace {

Error Invalid(const std::string& what) {
  return {ErrorCode::kInvalidArgument, "KV batch: " + what};
}

std::string Named(SequenceId id) { return "sequence " + std::to_string(id); }

Error WrongCount(size_t counts, size_t sequences) {
  return Invalid(std::to_string(counts) + " counts for " + std::to_string(sequences) +
                 " sequences; give one for each");
}

}  // namespace

std::vector<SequenceId> KvBatch::ids() const {
  std::vector<SequenceId> ids;
  for (const Entry& entry : entries_) ids.push_back(entry.id);
  return ids;
}

std::vector<KvSequence*> KvBatch::sequences() const {
  std::vector<KvSequence*> sequences;
  for (const Entry& entry : entries_) sequences.push_back(entry.sequence.get());
  return sequences;
}

KvSequence* KvBatch::Find(SequenceId id) const {
  for (const Entry& entry : entries_) {
    if (entry.id == id) return entry.sequence.get();
  }
  return nullptr;
}

Status KvBatch::CheckAdd(SequenceId id, const KvSequence& sequence) const {
  if (Find(id) != nullptr) return Invalid(Named(id) + " is in it already; use another id");
  if (entries_.empty()) return {};
  const KvSequence& first = *entries_.front().sequence;
  if (sequence.pool() != first.pool() || sequence.spec() != first.spec()) {
    return Invalid(Named(id) + " has another cache spec or pool than " +
                   Named(entries_.front().id) + "; keep them in different batches");
  }
  return {};
}

Status KvBatch::Add(SequenceId id, KvSequence&& sequence) {
  KVASIR_TRY_OK(CheckAdd(id, sequence));
  // The place first: once the sequence has moved nothing may fail.
  Entry& entry = entries_.emplace_back(Entry{id, nullptr});
  try {
    entry.sequence = std::make_unique<KvSequence>(std::move(sequence));
  } catch (...) {
    entries_.pop_back();
    throw;
  }
  return {};
}

Status KvBatch::Filter(std::span<const SequenceId> keep) {
  std::unordered_set<SequenceId> seen;
  for (const SequenceId id : keep) {
    if (Find(id) == nullptr) return Invalid(Named(id) + " is not in it and cannot be kept");
    if (!seen.insert(id).second) return Invalid(Named(id) + " is to be kept twice; name it once");
  }
  std::vector<Entry> kept;
  for (const SequenceId id : keep) {
    const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                    [id](const Entry& entry) { return entry.id == id; });
    kept.push_back(std::move(*entry));
  }
  entries_ = std::move(kept);
  return {};
}

Status KvBatch::Extend(KvBatch&& other) {
  if (&other == this) return Invalid("it cannot be extended with itself");
  for (const Entry& entry : other.entries_) {
    KVASIR_TRY_OK(CheckAdd(entry.id, *entry.sequence));
  }
  for (Entry& entry : other.entries_) entries_.push_back(std::move(entry));
  other.entries_.clear();
  return {};
}

Result<KvSequence> KvBatch::Extract(SequenceId id) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->id != id) continue;
    KvSequence sequence = std::move(*entry->sequence);
    entries_.erase(entry);
    return sequence;
  }
  return {ErrorCode::kNotFound, "KV batch: " + Named(id) + " is not in it"};
}

Result<KvBatch> KvBatch::Merge(std::span<KvBatch> parts) {
  std::unordered_set<SequenceId> seen;
  const KvBatch* first = nullptr;
  for (const KvBatch& part : parts) {
    if (part.empty()) continue;
    if (first == nullptr) first = &part;
    for (const Entry& entry : part.entries_) {
      if (!seen.insert(entry.id).second) {
        return Invalid(Named(entry.id) + " is in two of the batches to merge; use another id");
      }
    }
    if (&part != first) {
      KVASIR_TRY_OK(first->CheckAdd(part.entries_.front().id, *part.entries_.front().sequence));
    }
  }
  KvBatch merged;
  for (KvBatch& part : parts) {
    for (Entry& entry : part.entries_) merged.entries_.push_back(std::move(entry));
    part.entries_.clear();
  }
  return merged;
}

Status KvBatch::ReserveEach(std::span<const int64_t> tokens) {
  if (tokens.size() != entries_.size()) return WrongCount(tokens.size(), entries_.size());
  return KvSequence::ReserveAll(sequences(), tokens);
}

Result<std::vector<TrimReport>> KvBatch::TrimEach(std::span<const int64_t> counts) {
  if (counts.size() != entries_.size()) return WrongCount(counts.size(), entries_.size());
  if (std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; })) {
    return Invalid("a negative number of tokens cannot be trimmed; give 0 or more");
  }
  std::vector<TrimReport> reports;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Result<int64_t> trimmed = entries_[i].sequence->Trim(counts[i]);
    reports.push_back({entries_[i].id, trimmed.ok() ? trimmed.value() : 0, trimmed.status()});
  }
  return reports;
}

size_t KvBatch::nbytes() const {
  std::vector<const KvBlock*> references;
  for (const Entry& entry : entries_) {
    const auto more = entry.sequence->BlockReferences();
    references.insert(references.end(), more.begin(), more.end());
  }
  return BlockBytes(std::move(references));
}

}  // namespace kvasir
