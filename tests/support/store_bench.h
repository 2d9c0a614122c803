// A tiny engine with a folder of stored prefixes, which another one may share.
// Deliberately without expectations but that answers are right and nothing is left.
#ifndef KVASIR_TESTS_SUPPORT_STORE_BENCH_H_
#define KVASIR_TESTS_SUPPORT_STORE_BENCH_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "kvasir/kv/prefix_segment.h"
#include "tests/support/engine_bench.h"
#include "tests/support/swap_folder.h"

namespace kvasir {

namespace fs = std::filesystem;

inline constexpr TinyPolicy kFull = {"full_f32", kTinyFull, "f32", "f32"};
inline constexpr TinyPolicy kStates = {"states_f32", kTinyStates, "f32", "f32"};
inline constexpr TinyPolicy kWindows = {"windows_f32", kTinyWindows, "f32", "f32"};
inline constexpr int64_t kSegment = kSegmentTokens;

class StoreBench {
 public:
  explicit StoreBench(const TinyPolicy& policy) : bench_(policy) {}
  // As another process, on whatever machine, with the same folder.
  StoreBench(const TinyPolicy& policy, const StoreBench& other)
      : folder_(other.folder_), bench_(policy) {}

  Bench& bench() { return bench_; }
  Engine& engine() { return bench_.engine(); }
  const SwapFolder& folder() const { return *folder_; }
  EngineOptions Options() const {
    return {.store = {.dir = folder_->path(), .identity = "tiny", .ignores_rates = true}};
  }
  // As a process that knows nothing but the folder.
  void Restart(EngineOptions options, size_t budget_bytes = size_t{64} << 20) {
    bench_.Start(budget_bytes, std::move(options));
  }
  void Restart() { Restart(Options()); }

  Tokens Prompt(int64_t tokens, uint64_t seed = 1) const {
    return RandomTokens(tokens, bench_.model().vocab_size(), seed);
  }
  // One after the other; also what is written is waited for.
  const GenerationResult& Answer(const EngineRequest& request) {
    const RequestId id = bench_.Submit(request);
    bench_.Drain();
    return bench_.Answer(id);
  }
  void ExpectRight(const EngineRequest& request) {
    EXPECT_EQ(Answer(request).tokens, bench_.Alone(request));
  }
  EngineStats Stats() { return bench_.engine().Stats(); }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(folder_->path(), gone)) {
      files.push_back(entry.path());
    }
    return files;
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(bench_.LiveBytes(), 0u);
    bench_.engine().prefix_tree().Clear();
    EXPECT_EQ(bench_.pool().used_bytes(), 0u);
    EXPECT_FALSE(engine().has_work());
  }

 private:
  std::shared_ptr<const SwapFolder> folder_ = std::make_shared<SwapFolder>();
  Bench bench_;
};

// Also layers whose keys their values say, and layers that read others' rows.
inline std::vector<TinyPolicy> StoredPolicies() {
  std::vector<TinyPolicy> policies = EnginePolicies();
  policies.push_back({"from_value", kTinyFromValue, "f16", "f16"});
  policies.push_back({"shared_rows", "transformers_gemma4_shared_bf16", "f16", "f16"});
  return policies;
}

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_STORE_BENCH_H_
