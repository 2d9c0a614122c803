// The KV cache without a model: append, attend, fork, speculate, go back, within a byte budget.
// Deliberately uses the slow reference codec; an engine writes and reads blocks with its kernels.
#include <cmath>
#include <cstdio>

#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/speculation.h"

using namespace kvasir;  // NOLINT: an example

constexpr int kDim = 64;

Status Append(KvSequence& sequence, int tokens) {
  KVASIR_TRY_OK(sequence.Reserve(tokens));  // every layer or none, within the budget
  for (Position at = sequence.position(); at < sequence.reserved_end(); ++at) {
    KvRows row;  // what a model would compute
    for (int d = 0; d < kDim; ++d) row.keys.push_back(std::sin(0.1 * at * (d + 1)));
    for (int d = 0; d < kDim; ++d) row.values.push_back(std::cos(0.1 * at + d));
    for (const int layer : {0, 1}) sequence.WriteRows(layer, at, row);
  }
  sequence.Advance(tokens);  // blocks that left the window are released here
  return {};
}

// First element of softmax(q k) v for a query of eighths: over the rows before the next token,
// which stay until Advance has passed it.
double Attend(const KvSequence& sequence, int layer) {
  const VisibleRows visible = sequence.Visible(layer, sequence.position());
  double weights = 0, sum = 0;
  for (int64_t row = 0; row < visible.end - 1; ++row) {  // the last would be its own
    if (row == visible.head_end) row = visible.begin;    // between lies what the window has left
    double score = 0;
    for (const float key : sequence.ReadKeys(layer, row)) score += key / 8;
    weights += std::exp(score);
    sum += std::exp(score) * sequence.ReadValues(layer, row)[0];
  }
  return sum / weights;
}

Status Run() {
  KvPool pool({.budget_bytes = 1 << 20});
  const KvLayout dense = {.kv_heads = 1, .key_dim = kDim, .value_dim = kDim};  // f16
  KvLayout packed = dense;
  packed.key_codec = KvCodec::Affine(/*bits=*/4, /*group=*/64);
  packed.value_codec = KvCodec::Turbo(/*bits=*/3);
  const auto spec = std::make_shared<const KvCacheSpec>(KvCacheSpec{
      {{packed, RetentionSpec::All()}, {dense, RetentionSpec::Window(100, /*keep=*/4)}}});

  KVASIR_TRY(KvSequence sequence, KvSequence::Create(&pool, spec));
  KVASIR_TRY_OK(Append(sequence, 300));
  std::printf("300 tokens: %zu bytes, all %.4f, window %.4f\n", sequence.nbytes(),
              Attend(sequence, 0), Attend(sequence, 1));

  KvSequence fork = sequence.Fork();  // shares every block
  KVASIR_TRY_OK(Append(fork, 1));     // copies the partly filled last block of each layer
  std::printf("fork: %zu of %zu bytes its own\n", fork.nbytes_exclusive(), fork.nbytes());

  const KvSnapshot snapshot = sequence.Snapshot();  // references, no bytes
  const double before = Attend(sequence, 0);
  KvSequence* const members[] = {&sequence};
  KVASIR_TRY(Speculation drafts, Speculation::Begin(members));
  KVASIR_TRY_OK(Append(sequence, 5));
  KVASIR_TRY_OK(drafts.Commit(std::vector<int64_t>{2}));  // two of five drafts were right
  const Result<int64_t> refused = sequence.Trim(200);     // the window has released those rows
  std::printf("at %d; %s\n", int(sequence.position()), refused.status().error().message.c_str());
  KVASIR_TRY(const KvSequence restored, KvSequence::Restore(&pool, snapshot));
  if (Attend(restored, 0) == before) return {};
  return {ErrorCode::kCorrupt, "a restored snapshot reads differently"};
}

int main() {
  const Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
