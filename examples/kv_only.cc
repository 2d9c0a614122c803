// The KV cache without a model: append, attend, fork, go back, stay within a byte budget.
// Deliberately uses the slow reference codec; an engine writes and reads blocks with its kernels.
#include <cmath>
#include <cstdio>
#include <vector>

#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"

using namespace kvasir;  // NOLINT: an example

namespace {

constexpr int kDim = 8;

// Keys and values that a model would have computed for `token`.
KvRows RowOf(int token) {
  KvRows row;
  for (int d = 0; d < kDim; ++d) {
    row.keys.push_back(std::sin(0.1f * static_cast<float>(token * (d + 1))));
    row.values.push_back(std::cos(0.1f * static_cast<float>(token + d)));
  }
  return row;
}

Status Append(KvSequence& sequence, int token) {
  KVASIR_TRY_OK(sequence.Reserve(1));  // all layers or none, within the budget
  for (int layer = 0; layer < 2; ++layer) {
    sequence.WriteRows(layer, sequence.position(), RowOf(token));
  }
  sequence.Advance(1);  // rows that left the window are released here
  return {};
}

// First element of softmax(q k) v for the last token over the rows it may see.
float Attend(const KvSequence& sequence, int layer, const std::vector<float>& query) {
  const VisibleRows visible = sequence.Visible(layer, sequence.position() - 1);
  float weights = 0, sum = 0;
  for (Position row = visible.begin; row < visible.end; ++row) {
    const std::vector<float> key = sequence.ReadKeys(layer, row);
    float score = 0;
    for (int d = 0; d < kDim; ++d) score += query[d] * key[d];
    weights += std::exp(score);
    sum += std::exp(score) * sequence.ReadValues(layer, row)[0];
  }
  return sum / weights;
}

Status Run() {
  KvPoolOptions options;
  options.budget_bytes = size_t{1} << 20;
  KvPool pool(std::move(options));

  const KvLayout layout = {.kv_heads = 1, .key_dim = kDim, .value_dim = kDim};  // f16
  const auto spec = std::make_shared<const KvCacheSpec>(
      KvCacheSpec{{{layout, RetentionSpec::All()}, {layout, RetentionSpec::Window(100)}}});

  KVASIR_TRY(KvSequence sequence, KvSequence::Create(&pool, spec));
  for (int token = 0; token < 300; ++token) KVASIR_TRY_OK(Append(sequence, token));
  const std::vector<float> query(kDim, 0.5f);
  std::printf("300 tokens: %zu bytes, all %.4f, window %.4f\n", sequence.nbytes(),
              Attend(sequence, 0, query), Attend(sequence, 1, query));

  KvSequence fork = sequence.Fork();  // shares every block
  KVASIR_TRY_OK(Append(fork, 7));     // copies the last, partly filled block of each layer
  std::printf("fork: %zu of %zu bytes its own, %llu bytes copied in all\n", fork.nbytes_exclusive(),
              fork.nbytes(), static_cast<unsigned long long>(pool.Stats().copied_bytes));

  const float before = Attend(sequence, 1, query);
  KVASIR_TRY_OK(Append(sequence, 300));
  KVASIR_TRY(const int64_t trimmed, sequence.Trim(1));
  std::printf("trimmed %lld, the window reads the same: %s\n", static_cast<long long>(trimmed),
              Attend(sequence, 1, query) == before ? "yes" : "no");
  if (Attend(sequence, 1, query) != before) return {ErrorCode::kCorrupt, "trim changed a result"};

  const auto refused = sequence.Trim(200);
  std::printf("trim 200: %s\n", refused.ok() ? "done" : refused.error().message.c_str());
  return {};
}

}  // namespace

int main() {
  const Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
