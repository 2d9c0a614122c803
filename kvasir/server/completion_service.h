// CompletionService: what the routes know of the engine: requests go in, events come out.
// Deliberately without HTTP and JSON on this side, and without batching: that is the
// implementation's.
#ifndef KVASIR_SERVER_COMPLETION_SERVICE_H_
#define KVASIR_SERVER_COMPLETION_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/engine/engine_thread.h"
#include "kvasir/engine/generation.h"
#include "kvasir/engine/hidden_pool.h"
#include "kvasir/engine/prefix_cache_file.h"

namespace kvasir {

struct PromptProgress {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, found in the cache
  // Where the prompt parted from all that was cached; at least cached_tokens.
  int64_t known_prefix_tokens = 0;
  int64_t done_tokens = 0;  // of those not cached, evaluated so far
};

// Hears what becomes of one request. THREADS: the service calls one at a time, from its own.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;

  // Asked before every forward pass and when room for others is looked for: true ends all choices.
  // THREADS: also from Submit.
  virtual bool is_cancelled() const = 0;
  // Whether the client is so far behind that nothing more should be generated for it now. No call
  // below waits for it. THREADS: any.
  virtual bool is_paused() const = 0;
  virtual void OnPrompt(size_t choice, const PromptProgress& progress) = 0;
  // `scores`: null unless asked for. The text that the token completes follows in OnText.
  virtual void OnToken(size_t choice, const TokenScores* scores) = 0;
  virtual void OnText(size_t choice, std::string_view text) = 0;
  virtual void OnChoiceEnd(size_t choice, GenerationResult result) = 0;
  // Instead of OnChoiceEnd where a choice that was accepted ends with an error: what it has cost.
  virtual void OnChoiceFailure(size_t choice, const GenerationStats& stats) = 0;
  // Nothing follows. An error means that some choice had no end: kResourceExhausted for a full
  // queue, or a cache too small for a prompt's evaluation, kCancelled when the service stops, else
  // as Engine::Check.
  virtual void OnEnd(const Status& status) = 0;
};

struct CompletionRequest {
  GenerationRequest generation;             // of every choice, but for the prompt
  std::vector<std::vector<Token>> prompts;  // one at least
  int answers = 1;  // at least, of each prompt, as EngineRequest: choice i is of prompt i / answers
  std::unique_ptr<CompletionSink> sink;
  // As EngineRequest has them, for all choices.
  std::optional<Pooling> pooling;
  int priority = 0;
  uint64_t salt = 0;
  uint64_t tenant = 0;          // whose slots; one may have many salts
  std::optional<int64_t> slot;  // that remembers the conversation; else any
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// A slot of those who may see what was said there.
struct SlotAddress {
  uint64_t tenant = 0;  // as the requests had them
  uint64_t salt = 0;
  int64_t number = 0;
};

struct SlotFile {
  std::string path;
  // Asked before every block, on the caller's thread; true: nobody wants it any more, and nothing
  // is left of it. Unset: never.
  std::function<bool()> is_cancelled;
};

// Names one request of one service, for ever.
using CompletionId = uint64_t;

// What one place of the engine is doing.
struct SlotStatus {
  bool is_processing = false;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t max_tokens = 0;
};

struct ServiceStatus {
  std::vector<SlotStatus> slots;
  int64_t waiting = 0;  // requests, as the queue counts them, of which each may have many choices
  size_t cache_used_bytes = 0;
  size_t cache_budget_bytes = 0;
  EngineStats engine;
};

class CompletionService {
 public:
  virtual ~CompletionService() = default;

  // Answers through the sink, now or later. THREADS: any.
  virtual CompletionId Submit(CompletionRequest request) = 0;
  // Ends all choices of a request within one forward pass, whatever it is doing: the sink hears
  // FinishReason::kCancelled. False if it has ended already. THREADS: any.
  virtual bool Cancel(CompletionId id) = 0;
  // THREADS: any.
  virtual ServiceStatus status() const = 0;
  // Slots: the conversation that a place held last, to a file and back. They return when that is
  // done; others are answered meanwhile. ERRORS: as ConversationSave and ConversationLoad;
  // kFailedPrecondition where nothing was said; kCancelled when it was or the service stops.
  // THREADS: any but the engine's.
  virtual bool HasSlot(int64_t number) const = 0;
  virtual Result<PrefixCacheFileStats> SaveSlot(const SlotAddress& slot, const SlotFile& file) = 0;
  virtual Result<PrefixCacheFileStats> LoadSlot(const SlotAddress& slot, const SlotFile& file) = 0;
  // The tokens that the slot forgets. What is cached of them stays until room is needed.
  virtual int64_t EraseSlot(const SlotAddress& slot) = 0;
  // As EngineThread::Picture.
  virtual void Picture(EngineThread::ShowPicture show) = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_COMPLETION_SERVICE_H_
