// Engine: many requests on one model, batched step by step, with every known prefix reused.
// Deliberately without a thread and without text of messages: EngineThread runs it, others parse.
#ifndef KVASIR_ENGINE_ENGINE_H_
#define KVASIR_ENGINE_ENGINE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/log.h"
#include "kvasir/base/result.h"
#include "kvasir/engine/engine_stream.h"
#include "kvasir/engine/lent_blocks.h"
#include "kvasir/engine/prefix_store.h"
#include "kvasir/engine/publish_points.h"
#include "kvasir/engine/request.h"
#include "kvasir/engine/scheduler.h"
#include "kvasir/engine/swap_store.h"
#include "kvasir/kv/cache_picture.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/kv/speculation.h"
#include "kvasir/model/model.h"
#include "kvasir/speculative/draft_rounds.h"

namespace kvasir {

// What an engine runs on. Model, pool and tokenizer must outlive it; nobody else may use the pool.
struct EngineParts {
  const Model* model = nullptr;
  KvPool* pool = nullptr;
  std::shared_ptr<const KvCacheSpec> spec;
  AnswerVocabulary vocabulary;

  static EngineParts Of(ModelBundle& bundle);
};

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t max_streams = 32;  // answers being made at once; more wait
  // Drafts per answer and step at most, for requests that do not say; how many there are is chosen
  // from what they cost and bring.
  int64_t max_drafts = 16;
  SwapOptions swap;          // for preempted answers
  PrefixStoreOptions store;  // for what is cached
  // What the prefix tree may take beside blocks; see CacheBudget.
  size_t max_index_bytes = std::numeric_limits<size_t>::max();
  std::function<EngineClock::time_point()> now = {};  // empty: EngineClock::now
};

struct EnginePicture;

struct EngineStats {
  int64_t waiting_requests = 0;  // accepted and not begun
  int64_t running_requests = 0;
  int64_t active_streams = 0;   // answers that hold cache blocks
  int64_t swapped_streams = 0;  // preempted ones whose cache is on disk, or on its way there
  int64_t reading_streams = 0;  // and on its way back: active already
  size_t scratch_bytes = 0;     // of the workspace and of the backend, largest so far
  size_t index_bytes = 0;       // PrefixTree::index_bytes
  size_t used_bytes = 0;        // of the pool: running and cached
  // Since creation:
  int64_t steps = 0;
  int64_t evaluated_tokens = 0;  // rows of all forward passes, recomputed ones included
  int64_t generated_tokens = 0;
  int64_t prompt_tokens = 0;  // of all requests that have begun
  int64_t cached_tokens = 0;  // of prompts, not evaluated
  int64_t preemptions = 0;
  int64_t drafted_tokens = 0;   // verified beside the token that was certain
  int64_t accepted_drafts = 0;  // of them
  // Steps of one answer that verified so many drafts, the last: so many or more; the first counts
  // only answers that could have had some.
  std::array<int64_t, 17> draft_depths = {};
  int64_t swapped_out = 0;  // preempted caches that began to go to disk
  int64_t swapped_in = 0;   // and came back whole
  int64_t swaps_lost = 0;   // and were given up for a reason of the disk's or of memory
  uint64_t swap_bytes = 0;  // on disk now
  PrefixStoreStats store;
  int64_t fetched_tokens = 0;  // that came from the store instead of being evaluated
  PrefixEvictions evictions;   // for whatever wanted the memory
};

// What a request is answered depends on the request alone: not on others, on memory pressure, on
// what is cached or on the scheduler's options.
// THREADS: one at a time, but for NewId, Check and Breakers.
class Engine {
 public:
  // ERRORS: kInvalidArgument (options, vocabulary, a spec that is not the model's); as
  // SwapStore::Open and PrefixStore::Open.
  static Result<std::unique_ptr<Engine>> Create(EngineParts parts, EngineOptions options = {});
  // Cancels whatever is unfinished, also what is being stored.
  ~Engine();

  // From now on answers are drafted and verified several tokens at a time. Changes how fast they
  // come and not one bit of them. REQUIRES: nothing is being answered.
  void UseDrafter(std::unique_ptr<Drafter> drafter);

  // A name that no request of this engine has had. THREADS: any.
  RequestId NewId() { return next_id_.fetch_add(1); }
  // OK if Submit would accept it. ERRORS: kInvalidArgument, naming the field, also if the prompt
  // fits into no cache of this budget. THREADS: any.
  Status Check(const EngineRequest& request) const;

  // What a request's DRY sees no repetition across; null without DRY. Finding it looks at the whole
  // vocabulary, which should not keep others waiting. THREADS: any.
  std::shared_ptr<const DryBreakers> Breakers(const SamplingOptions& options);

  // Accepts a request; it begins in the next step if there is room. ERRORS: as Check.
  Result<RequestId> Submit(EngineRequest request, EngineCallbacks callbacks);
  // The same for an id of NewId and what Breakers says of its sampling. ERRORS: as Check; then
  // on_finish is not called.
  Status Submit(RequestId id, EngineRequest request, EngineCallbacks callbacks,
                std::shared_ptr<const DryBreakers> breakers);

  // Ends a request with FinishReason::kCancelled and gives back its memory: at once, or at the end
  // of the step when called from a callback. Unknown and finished ids are ignored.
  void Cancel(RequestId id);
  // Also what is being stored.
  void CancelAll();

  // Admits, runs one forward pass, shows new tokens. Returns whether work is left.
  bool Step();
  // Also what is being stored.
  bool has_work() const {
    return !jobs_.empty() || !submitted_.empty() || (store_ != nullptr && store_->is_writing());
  }

  EngineStats Stats() const;
  // For people to look at (engine_picture.h). Costs what `options` allow; a request's salt decides
  // what it is shown to share, and shows nowhere.
  EnginePicture Picture(const CachePictureOptions& options = {}) const;
  const EngineOptions& options() const { return options_; }
  PrefixTree& prefix_tree() { return tree_; }
  KvPool& pool() { return *parts_.pool; }
  // Blocks of the pool that somebody else holds for a while. Before anybody's answer gives way they
  // are taken back.
  void Lend(std::weak_ptr<LentBlocks> blocks);

 private:
  struct Job;
  // One run of the step being made.
  struct Member {
    Job* job;
    EngineStream* stream;
    int64_t tokens;
    int64_t most_drafts = 0;         // that there is room for
    std::vector<Token> drafts = {};  // evaluated behind the last known token
    int64_t accepted_drafts = 0;
    int64_t hidden_rows = 0;  // of its last tokens, drafts included
  };

  Engine(EngineParts parts, EngineOptions options, std::unique_ptr<SwapStore> swap,
         std::unique_ptr<PrefixStore> store);

  EngineClock::time_point Now() const { return options_.now ? options_.now() : EngineClock::now(); }
  void AddStreams(Job& job, int count);

  void TakeSubmitted();
  void EndCancelled();
  void EndAndClose();
  // Ends what of it has not ended; `error`: why, where it is one.
  void EndJob(Job& job, FinishReason reason, const std::optional<Error>& error = {});
  void EndAnswer(const Job& job, EngineStream& stream, FinishReason reason);
  void Close();

  // engine_step.cc
  std::vector<Member> PlanMembers();
  Result<ConstFloatRows> Forward(std::vector<Member>& members);
  void Deliver(std::vector<Member>& members, ConstFloatRows logits);
  void BeginAnswers(Job& job, EngineStream& first, ConstFloatRows hidden);
  void Accept(Job& job, EngineStream& stream, std::span<const float> logits);
  void EndPooled(Job& job, EngineStream& stream);
  void Choose(Job& job, EngineStream& stream, std::span<const float> logits);
  void Retire(const Job& job, EngineStream& stream);
  void Publish(const Job& job, EngineStream& stream);
  void PublishPoint(const Job& job, EngineStream& stream);
  static PublishPoints::Prompt PointsOf(const Job& job, const EngineStream& stream);
  void KeepStates(const std::vector<Member>& members);
  static bool DropKeptStates(const std::vector<Member>& members);
  static void ForgetStates(KvSequence& sequence);

  // engine_drafts.cc
  void ProposeDrafts(std::vector<Member>& members);
  int64_t MaxDrafts(const Member& member, int64_t streams) const;
  int64_t WantedDrafts(const Member& member) const;
  void OpenSpeculation(std::vector<Member>& members);
  static void KeepStatesOfDrafts(const Member& member);
  int64_t StatesForDrafts() const;
  bool DropDrafts(std::vector<Member>& members);
  void Verify(Member& member, ConstFloatRows logits, int64_t row);
  int64_t HiddenRows(const Member& member, bool is_last) const;
  void TellDrafter(const Member& member, ConstFloatRows hidden);
  void CommitDrafts(const std::vector<Member>& members);
  void RecordStep(const std::vector<Member>& members, double ms, uint64_t committed_bytes);
  void DropDraftState(const Job& job, EngineStream& stream);

  // engine_memory.cc
  void Admit();
  bool HasRoomFor(const EngineStream& stream, const KvSequence& cached,
                  std::span<const Member> active) const;
  std::optional<std::vector<Member>> FindVictims(const Job& job, const EngineStream& stream,
                                                 const KvSequence& cached) const;
  enum class Admission { kAdmitted, kLater, kNoRoom };
  Admission TryAdmit(Job& job, EngineStream& stream);
  void Begin(Job& job, EngineStream& stream, int64_t cached_tokens, int64_t known_prefix_tokens);
  bool IsBeingRead(const Job& job, int64_t cached_tokens) const;
  static size_t BytesToReserve(const std::vector<Member>& members);
  bool IsEvictionEnough(const std::vector<Member>& members) const;
  bool EvictFor(const std::vector<Member>& members);
  bool MakeRoom(std::vector<Member>& members, const Error& error);
  bool StartOver(Job& job, EngineStream& stream, size_t wanted);
  void AllowStartingOver(const EngineStream* taker);
  bool TakeBackLent();
  void Preempt(Job& job, EngineStream& stream);
  // Streams that hold blocks, or that wait for some, the most important first.
  std::vector<Member> StreamsByRank(bool with_blocks) const;

  // engine_swap.cc
  void UpdateSwaps();
  void UpdateSwap(EngineStream& stream);
  // Gives up what the stream has on disk, or on its way: its tokens are evaluated again.
  void LoseSwap(EngineStream& stream);
  void SwapOut(EngineStream& stream);
  bool IsWorthReading(const EngineStream& stream, int64_t found_tokens) const;
  bool BeginReading(EngineStream& stream, const KvSequence& known);
  bool WaitForSwap();
  int64_t ExclusiveTokens(const EngineStream& stream) const;
  void MeasureStep(int64_t tokens, std::chrono::steady_clock::duration time);

  // engine_store.cc
  void UpdateStore();
  void UpdateFetch(const Job& job, EngineStream& stream);
  bool PublishFetched(const Job& job, const EngineStream& stream, const KvSnapshot& segment);
  void EndFetch(EngineStream& stream);
  bool IsSearching(const EngineStream& stream) const;
  void EndSearch(EngineStream& stream);
  bool SearchMore(EngineStream& stream, std::span<const PrefixKey> keys, size_t first);
  // `tokens`: as many as may come from a cache.
  bool FetchMore(const Job& job, EngineStream& stream, std::span<const Token> tokens,
                 int64_t found_tokens);
  void StorePrefix(const Job& job, EngineStream& stream);
  bool WaitForStore();

  const EngineParts parts_;
  const EngineOptions options_;
  std::atomic<RequestId> next_id_ = 1;
  PrefixTree tree_;
  Workspace workspace_;
  Sampler sampler_;
  std::optional<DraftRounds> draft_rounds_;  // null: one token at a time
  std::optional<Speculation> speculation_;   // of the step being made
  const PublishPoints publish_points_;
  const bool evicts_rows_;
  const std::unique_ptr<SwapStore> swap_;     // null: nothing is swapped
  const std::unique_ptr<PrefixStore> store_;  // null: what is cached is in memory only
  std::vector<std::weak_ptr<LentBlocks>> lent_;
  double prefill_rate_ = 0;  // tokens per second, measured; 0: not yet
  std::chrono::milliseconds last_step_{0};
  std::chrono::milliseconds disk_wait_left_{0};  // of this step
  std::vector<std::unique_ptr<Job>> submitted_;  // since the last step began
  std::vector<std::unique_ptr<Job>> jobs_;       // in order of arrival
  bool is_stepping_ = false;
  bool is_ending_ = false;
  // Growing streams only take room away, so whoever did not fit need not be asked again before some
  // blocks have been given back.
  bool is_admission_blocked_ = false;
  EngineStats stats_;
  std::mutex breakers_mutex_;
  DryBreakerCache breakers_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_H_
