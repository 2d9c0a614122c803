#include "kvasir/cli/trace_sequences.h"

#include <utility>

#include "kvasir/cli/trace_tensor.h"

namespace kvasir {

SequenceId TraceSequences::IdOf(const std::string& name) {
  return ids_.try_emplace(name, static_cast<SequenceId>(ids_.size() + 1)).first->second;
}

Result<KvBatch*> TraceSequences::BatchOf(const std::string& name) {
  for (KvBatch& batch : batches_) {
    if (batch.Find(IdOf(name)) != nullptr) return &batch;
  }
  return MalformedTrace("there is no sequence '" + name + "'");
}

Result<KvSequence*> TraceSequences::Find(const std::string& name) {
  KVASIR_TRY(KvBatch* const batch, BatchOf(name));
  return batch->Find(IdOf(name));
}

Status TraceSequences::AddBatch(const std::vector<std::string>& names,
                                const std::shared_ptr<const KvCacheSpec>& spec) {
  KvBatch batch;
  for (const std::string& name : names) {
    KVASIR_TRY(KvSequence sequence, KvSequence::Create(pool_, spec));
    KVASIR_TRY_OK(batch.Add(IdOf(name), std::move(sequence)));
  }
  batches_.push_back(std::move(batch));
  return {};
}

Status TraceSequences::AddAlone(const std::string& name, KvSequence sequence) {
  KvBatch batch;
  KVASIR_TRY_OK(batch.Add(IdOf(name), std::move(sequence)));
  batches_.push_back(std::move(batch));
  return {};
}

Status TraceSequences::Filter(const std::string& any, const std::vector<std::string>& keep) {
  KVASIR_TRY(KvBatch* const batch, BatchOf(any));
  std::vector<SequenceId> ids;
  for (const std::string& name : keep) ids.push_back(IdOf(name));
  KVASIR_TRY_OK(batch->Filter(ids));
  DropEmptyBatches();
  return {};
}

Status TraceSequences::Extend(const std::string& into, const std::string& added) {
  KVASIR_TRY(KvBatch* const to, BatchOf(into));
  KVASIR_TRY(KvBatch* const from, BatchOf(added));
  if (to != from) KVASIR_TRY_OK(to->Extend(std::move(*from)));
  DropEmptyBatches();
  return {};
}

Status TraceSequences::Merge(const std::vector<std::string>& names) {
  std::vector<KvBatch> parts;
  for (const std::string& name : names) {
    KVASIR_TRY(KvBatch* const batch, BatchOf(name));
    KVASIR_TRY(KvSequence sequence, batch->Extract(IdOf(name)));
    KvBatch part;
    KVASIR_TRY_OK(part.Add(IdOf(name), std::move(sequence)));
    parts.push_back(std::move(part));
  }
  KVASIR_TRY(KvBatch merged, KvBatch::Merge(parts));
  DropEmptyBatches();
  batches_.push_back(std::move(merged));
  return {};
}

void TraceSequences::DropEmptyBatches() {
  std::erase_if(batches_, [](const KvBatch& batch) { return batch.empty(); });
}

}  // namespace kvasir
