// EngineStream: an answer with its cache while it has one, or with what is left of it.
// Deliberately without scheduling and memory pressure: the engine decides when it gets logits.
#ifndef KVASIR_ENGINE_ENGINE_STREAM_H_
#define KVASIR_ENGINE_ENGINE_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvasir/engine/answer_builder.h"
#include "kvasir/engine/hidden_pool.h"
#include "kvasir/engine/prefix_key.h"
#include "kvasir/engine/prefix_store.h"
#include "kvasir/engine/request.h"
#include "kvasir/engine/swapped_cache.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/speculative/draft_rounds.h"

namespace kvasir {

class EngineStream : public AnswerBuilder {
 public:
  // The request must outlive it, as must what an AnswerBuilder is given.
  EngineStream(const EngineRequest* request, const AnswerVocabulary* vocabulary, Options options);

  // For requests with pooling: which states are wanted, and where they go. The embedding is
  // complete with the state of the last known token.
  int64_t WantedStates(int64_t tokens, bool is_last) const;
  void AddStates(Position begin, ConstFloatRows states);
  // Tokens of the prompt that need not be evaluated for their states.
  int64_t pooled_tokens() const { return pool_ ? pool_->position() : 0; }

  // Has its first token and never had a sequence: its request has more answers than there was room
  // for.
  bool waits_for_place = false;
  // Why it ended, if not well; and whether that was told (EngineCallbacks::on_answer_end), which
  // takes the result but its numbers.
  std::optional<Error> error;
  bool is_told = false;

  // Null while the stream waits for memory: never admitted, or preempted.
  std::optional<KvSequence> sequence;
  // What a preempted stream has on disk. Null if nothing; never beside a sequence.
  std::unique_ptr<SwappedCache> swapped;

  // What its tokens are called in the store, as far as somebody asked; what it waits for from
  // there, without a sequence; and how often it may do so, as what came can be evicted again:
  // enough for kMostSegments each time of any context.
  PrefixKeys keys;
  std::unique_ptr<PrefixFetch> fetch;
  int fetches_left = 32;
  // Others may have stored what this process does not know of: the question that it waits for an
  // answer to, and up to which segment it has asked.
  std::shared_ptr<const PrefixSearch> search;
  size_t searched_segments = 0;
  // Where the prompt parts from all that was cached: others will part from it there too.
  Position parts_at = 0;

  // Whether it has blocks that others could get: a sequence, or those that one is being read into.
  bool holds_blocks() const { return sequence || is_reading(); }
  bool is_reading() const { return swapped && swapped->state() == SwappedCache::State::kReading; }
  // Every reference to such a block.
  std::vector<const KvBlock*> BlockReferences() const {
    if (sequence) return sequence->BlockReferences();
    return is_reading() ? swapped->BlockReferences() : std::vector<const KvBlock*>();
  }
  // Chose a token since it was given its place.
  bool has_advanced() const { return generated_tokens() > tokens_at_admission; }
  int64_t tokens_at_admission = 0;
  // How many it had chosen when it last gave up its blocks to take others (Engine::StartOver).
  int64_t tokens_at_start_over = -1;
  bool is_starting_over() const { return tokens_at_start_over == generated_tokens(); }
  EngineClock::time_point admitted_at;
  EngineClock::time_point first_token_at;
  DraftedAnswer drafted;

  // The model's hidden state of the last token but one, as a drafter wants it: empty until a step
  // has read that token with it kept. It outlives the loss of the cache, being what it would be
  // again.
  std::span<const float> hidden() const {
    if (hidden_position_ != known_tokens() - 2) return {};
    return hidden_;
  }
  // `state`: one row.
  void KeepHidden(Position position, ConstFloatRows state) {
    hidden_position_ = position;
    hidden_.assign(state.row(0), state.row(0) + state.cols);
  }

  // Gives up everything it holds for good. The result says how large the cache was.
  void ReleaseCache();

 private:
  std::optional<HiddenPool> pool_;
  std::vector<float> hidden_;
  Position hidden_position_ = -1;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_STREAM_H_
