#include "kvasir/engine/model_fingerprint.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/checksum.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/model/workspace.h"

namespace kvasir {
namespace {

constexpr int64_t kTokens = 8;

uint64_t ChecksumOf(ConstFloatRows rows) {
  std::vector<uint64_t> sums;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const std::span row(rows.row(r), static_cast<size_t>(rows.cols));
    sums.push_back(Checksum64(std::as_bytes(row)));
  }
  return Checksum64(std::as_bytes(std::span(sums)));
}

}  // namespace

Result<std::string> FingerprintOf(const Model& model, const KvPolicy& policy) {
  KvPolicy packed = policy;
  packed.dense_start = 0;
  packed.dense_recent = 0;
  packed.budget.reset();
  packed.budget_skip_layers.clear();
  KVASIR_TRY(KvCacheSpec made, packed.Apply(model.CacheSpec({}), model.query_heads()));
  const auto spec = std::make_shared<const KvCacheSpec>(std::move(made));
  const int64_t count = std::min(kTokens, model.context_tokens());
  // A slab is at most an eighth of a budget.
  KvPool pool(KvPoolOptions{.budget_bytes = 16 * spec->BytesAt(count)});
  KVASIR_TRY(KvSequence sequence, KvSequence::Create(&pool, spec));
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<Token>((2 * i + 1) * model.vocab_size() / (2 * count)));
  }
  Workspace workspace;
  const SequenceRun run = {
      .sequence = &sequence, .tokens = tokens, .logits_rows = 1, .hidden_rows = count};
  KVASIR_TRY(const ConstFloatRows logits, model.Forward(std::span(&run, 1), workspace));
  std::vector<uint64_t> sums = {ChecksumOf(workspace.HiddenStates()), ChecksumOf(logits)};
  if (model.LaterPositionsSum() != 0) sums.push_back(model.LaterPositionsSum());
  return ChecksumDigits(Checksum64(std::as_bytes(std::span(sums))));
}

}  // namespace kvasir
