// A drafting head whose answer depends on every pair of its cache: one wrong pair, anywhere, shows.
// Deliberately computes no attention: its cache keeps the pairs, and it hashes them in their order.
#ifndef KVASIR_TESTS_SUPPORT_SYNTHETIC_HEAD_H_
#define KVASIR_TESTS_SUPPORT_SYNTHETIC_HEAD_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kvasir/kv/kv_spec.h"
#include "kvasir/model/pair_head.h"

namespace kvasir {

class SyntheticHead final : public PairHead {
 public:
  SyntheticHead(int64_t vocab_size, int64_t state_size)
      : vocab_size_(vocab_size), state_size_(state_size) {}

  // A row holds as much of a pair as fits: the token, then the state's hash.
  static constexpr int kDim = 16;
  static std::shared_ptr<const KvCacheSpec> Spec() {
    const KvCodec f32 = {KvCodec::Kind::kF32};
    return std::make_shared<const KvCacheSpec>(
        KvCacheSpec::Uniform(1, {.layout = {.kv_heads = 1,
                                            .key_dim = kDim,
                                            .value_dim = kDim,
                                            .key_codec = f32,
                                            .value_codec = f32}}));
  }
  // FNV-1a over the bits of numbers.
  static uint64_t Hash(std::span<const float> numbers, uint64_t hash = 0xCBF29CE484222325ull) {
    for (const float number : numbers) {
      uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof(bits));
      hash = (hash ^ bits) * 0x100000001B3ull;
    }
    return hash;
  }
  static std::vector<float> Row(Token token, std::span<const float> state) {
    std::vector<float> row(kDim, 0.0f);
    const uint64_t hash = Hash(state);
    row[0] = static_cast<float>(token);
    for (size_t i = 0; i < 8; ++i) row[i + 1] = static_cast<float>(hash >> (8 * i) & 255);
    return row;
  }
  // What it says of rows: [rows, kDim].
  Token Says(std::span<const float> rows) const {
    return static_cast<Token>((Hash(rows) >> 20) % static_cast<uint64_t>(vocab_size_));
  }
  std::vector<float> StateOf(std::span<const float> rows) const {
    std::vector<float> state(static_cast<size_t>(state_size_));
    const uint64_t hash = Hash(rows);
    for (size_t i = 0; i < state.size(); ++i) {
      state[i] = static_cast<float>(hash >> (i * 5 % 60) & 31);
    }
    return state;
  }

  int64_t vocab_size() const override { return vocab_size_; }
  int64_t state_size() const override { return state_size_; }

  Result<Output> Forward(std::span<const PairRun> runs, int64_t tokens,
                         Workspace& workspace) const override {
    std::vector<KvSequence*> caches;
    std::vector<int64_t> counts;
    for (const PairRun& run : runs) {
      caches.push_back(run.cache);
      counts.push_back(static_cast<int64_t>(run.tokens.size()));
    }
    KVASIR_TRY_OK(KvSequence::ReserveAll(caches, counts));
    for (const PairRun& run : runs) Write(run);
    const auto count = static_cast<int64_t>(runs.size());
    const FloatRows logits = workspace.Rows(Workspace::Buffer::kLogits, count, tokens);
    const FloatRows states = workspace.Rows(Workspace::Buffer::kStates, count, state_size_);
    for (int64_t i = 0; i < count; ++i) {
      const KvSequence& cache = *runs[static_cast<size_t>(i)].cache;
      const std::vector<float> rows = cache.ReadRows(0, 0, cache.position()).keys;
      std::fill_n(logits.row(i), tokens, 0.0f);
      if (Says(rows) < tokens) logits.row(i)[Says(rows)] = 9.0f;
      const std::vector<float> state = StateOf(rows);
      std::copy(state.begin(), state.end(), states.row(i));
    }
    ++passes;
    logits_tokens = tokens;
    return Output{logits, states};
  }

  mutable int64_t passes = 0;
  mutable int64_t pairs = 0;
  mutable int64_t logits_tokens = 0;  // of the last pass

 private:
  void Write(const PairRun& run) const {
    KvRows rows;
    for (size_t i = 0; i < run.tokens.size(); ++i) {
      const float* const state = run.states.row(static_cast<int64_t>(i));
      const auto row = Row(run.tokens[i], {state, static_cast<size_t>(run.states.cols)});
      rows.keys.insert(rows.keys.end(), row.begin(), row.end());
    }
    rows.values = rows.keys;
    run.cache->WriteRows(0, run.cache->position(), rows);
    run.cache->Advance(static_cast<int64_t>(run.tokens.size()));
    pairs += static_cast<int64_t>(run.tokens.size());
  }

  const int64_t vocab_size_;
  const int64_t state_size_;
};

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_SYNTHETIC_HEAD_H_
