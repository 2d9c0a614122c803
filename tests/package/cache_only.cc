// Uses the installed cache library by itself: appends, forks, trims.
#include <cstdio>

#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"

namespace {

kvasir::Status Run() {
  kvasir::KvPoolOptions options;
  options.budget_bytes = size_t{1} << 20;
  kvasir::KvPool pool(std::move(options));
  const kvasir::KvLayout layout = {.kv_heads = 1, .key_dim = 8, .value_dim = 8};
  const auto spec = std::make_shared<const kvasir::KvCacheSpec>(
      kvasir::KvCacheSpec::Uniform(2, {layout, kvasir::RetentionSpec::All()}));
  KVASIR_TRY(kvasir::KvSequence sequence, kvasir::KvSequence::Create(&pool, spec));
  KVASIR_TRY_OK(sequence.Reserve(100));
  sequence.Advance(100);
  const kvasir::KvSequence fork = sequence.Fork();
  KVASIR_TRY(const int64_t trimmed, sequence.Trim(40));
  std::printf("trimmed %lld of %lld\n", static_cast<long long>(trimmed),
              static_cast<long long>(fork.position()));
  if (sequence.position() != 60 || fork.position() != 100) {
    return {kvasir::ErrorCode::kFailedPrecondition, "a fork must not see its origin's trim"};
  }
  return {};
}

}  // namespace

int main() {
  const kvasir::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
