// What the engine is asked and what it answers.
// Deliberately plain values: state of a running request is the engine's business.
#ifndef KVASIR_ENGINE_REQUEST_H_
#define KVASIR_ENGINE_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/engine/generation.h"
#include "kvasir/engine/hidden_pool.h"

namespace kvasir {

// Names one request of one engine, for ever.
using RequestId = uint64_t;
using EngineClock = std::chrono::steady_clock;

// Each answer takes memory of its own beside the cache.
inline constexpr int kMostAnswers = 1024;

struct EngineRequest : GenerationRequest {
  // "n": they share the prompt's blocks, and begin together as far as there are streams. Answer i
  // is the one that the seed `sampling.seed + i` gives alone.
  int answers = 1;
  // Set: nothing is generated; the prompt's hidden states, after the final norm, are pooled into
  // GenerationResult::embedding. For the mean all tokens are evaluated, whatever is cached, and
  // others find them only if memory was short meanwhile. REQUIRES: one answer, !scores_prompt.
  std::optional<Pooling> pooling;
  int priority = 0;   // larger is admitted and prefilled first, and preempted last
  uint64_t salt = 0;  // only requests of the same salt share cached prefixes
  std::optional<EngineClock::time_point> deadline;
};

struct EngineResult {
  // The first error of an answer. ERRORS: kResourceExhausted if it does not fit into the cache even
  // alone, kCancelled if the deadline came, kFailedPrecondition where its constraint allows no
  // token of the vocabulary. Answers then hold what there was.
  Status status;
  // One per answer asked for; none where on_answer_end has taken them. stats.prefill_ms is the time
  // from admission to the first token.
  std::vector<GenerationResult> answers;
  int64_t preemptions = 0;  // how often an answer lost its cache and computed it again
  double queued_ms = 0;     // from Submit to admission
};

// Tokens of a prompt.
struct PrefillProgress {
  int64_t cached = 0;        // found in the cache
  int64_t known_prefix = 0;  // GenerationStats::known_prefix_tokens
  int64_t done = 0;          // the cached ones and those read since
  int64_t total = 0;
};

// Called on the thread that calls Engine::Step; may call Submit and Cancel of that engine, and must
// not throw. Any may be empty. After on_finish, nothing more is called.
struct EngineCallbacks {
  // Whole UTF-8 characters of an answer as they become certain.
  std::function<void(int answer, std::string_view text)> on_text;
  // Before the text it completes; not for end tokens. The scores are null unless asked for.
  std::function<void(int answer, Token token, const TokenScores* scores)> on_token;
  // After each step that read some of the prompt.
  std::function<void(const PrefillProgress& progress)> on_prefill;
  // Asked once per step; true: nothing for this request now, because its reader is behind. It keeps
  // its place, but is the first to be preempted.
  std::function<bool()> is_paused;
  // Asked once per step; true is a Cancel.
  std::function<bool()> is_cancelled;
  // Gets each answer when it ends, which EngineResult::answers then lacks; `status` as
  // EngineResult::status, of this answer.
  std::function<void(int answer, const Status& status, GenerationResult result)> on_answer_end;
  // Exactly once for a request that was accepted, behind the ends of its answers.
  std::function<void(EngineResult result)> on_finish;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_REQUEST_H_
