// A tiny recorded checkpoint, ready to run: what the model's and the engine's tests share.
// Deliberately fails loudly (KVASIR_CHECK) when a checkpoint of the repository cannot be read.
#ifndef KVASIR_TESTS_SUPPORT_TINY_MODEL_H_
#define KVASIR_TESTS_SUPPORT_TINY_MODEL_H_

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/json.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/model/model_loader.h"

namespace kvasir {

template <typename T>
T ValueOrDie(Result<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.error().message.c_str());
  KVASIR_CHECK(result.ok());
  return std::move(result).value();
}

inline void OrDie(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  KVASIR_CHECK(status.ok());
}

// [begin, end), for KvSequence::KeepStatesAt.
inline std::vector<Position> PositionsWithin(Position begin, Position end) {
  std::vector<Position> positions(static_cast<size_t>(end - begin));
  std::iota(positions.begin(), positions.end(), begin);
  return positions;
}

struct TinyModelOptions {
  std::string folder;  // under testdata/models, or a path from the repository's root
  int threads = 1;
  std::optional<Isa> isa;
  AttentionMath attention = AttentionMath::kAuto;
  std::optional<WeightFormat> weights;
  KvCodec codec = {KvCodec::Kind::kF32};
  size_t budget_bytes = size_t{256} << 20;
};

class TinyModel {
 public:
  explicit TinyModel(const TinyModelOptions& options)
      : backend_(ValueOrDie(MakeCpuBackend(
            {.threads = options.threads, .isa = options.isa, .attention = options.attention}))),
        loaded_(ValueOrDie(LoadModel(Folder(options.folder), *backend_,
                                     {.weight_format = options.weights, .log = {}}))),
        spec_(std::make_shared<const KvCacheSpec>(loaded_.model->CacheSpec(options.codec))),
        pool_(std::make_unique<KvPool>(KvPoolOptions{.budget_bytes = options.budget_bytes})) {}

  static std::string Folder(const std::string& name) {
    const bool is_path = name.find('/') != std::string::npos;
    return std::string(KVASIR_SOURCE_DIR) + (is_path ? "/" : "/testdata/models/") + name;
  }

  const Model& model() const { return *loaded_.model; }
  const ModelConfig& config() const { return loaded_.config; }
  Backend& backend() { return *backend_; }
  KvPool& pool() { return *pool_; }
  Workspace& workspace() { return workspace_; }
  KvSequence NewSequence() { return ValueOrDie(KvSequence::Create(pool_.get(), spec_)); }

  // Feeds `tokens` in runs of the given sizes (the last one repeats), cut where the sequence evicts
  // rows, and returns every position's logits, one after the other.
  std::vector<float> Feed(KvSequence& sequence, const std::vector<Token>& tokens,
                          const std::vector<int64_t>& chunks = {1 << 20}) {
    return FeedChunks(sequence, tokens, chunks, true);
  }
  // The same where nobody wants logits.
  void Prefill(KvSequence& sequence, const std::vector<Token>& tokens, int64_t chunk) {
    FeedChunks(sequence, tokens, {chunk}, false);
  }

 private:
  std::vector<float> FeedChunks(KvSequence& sequence, const std::vector<Token>& tokens,
                                const std::vector<int64_t>& chunks, bool wants_logits) {
    std::vector<float> logits;
    size_t begin = 0;
    for (size_t i = 0; begin < tokens.size(); ++i) {
      const int64_t chunk = std::min(chunks[std::min(i, chunks.size() - 1)], sequence.RunLimit());
      const size_t count = std::min<size_t>(static_cast<size_t>(chunk), tokens.size() - begin);
      const SequenceRun run = {&sequence, std::span(tokens).subspan(begin, count),
                               wants_logits ? static_cast<int64_t>(count) : 0};
      const ConstFloatRows rows =
          ValueOrDie(loaded_.model->Forward(std::span(&run, 1), workspace_));
      for (int64_t row = 0; row < rows.rows; ++row) {
        logits.insert(logits.end(), rows.row(row), rows.row(row) + rows.cols);
      }
      begin += count;
    }
    return logits;
  }

  std::unique_ptr<Backend> backend_;
  LoadedModel loaded_;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::unique_ptr<KvPool> pool_;
  Workspace workspace_;
};

// `count` tokens, a function of `seed`.
inline std::vector<Token> RandomTokens(int64_t count, int64_t vocab_size, uint64_t seed) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  uint64_t state = seed * 2 + 1;
  for (Token& token : tokens) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    token = static_cast<Token>((state >> 33) % static_cast<uint64_t>(vocab_size));
  }
  return tokens;
}

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_TINY_MODEL_H_
