// Engine::Job: one accepted request with its answers.
// Deliberately private to the engine's source files.
#ifndef KVASIR_ENGINE_ENGINE_JOB_H_
#define KVASIR_ENGINE_ENGINE_JOB_H_

#include <chrono>
#include <memory>
#include <vector>

#include "kvasir/engine/engine.h"
#include "kvasir/kv/prefix_segment.h"

namespace kvasir {

// A step waits for disks at most as long as the last one took to compute, and in any case long
// enough for one to begin.
inline constexpr std::chrono::milliseconds kLeastDiskWait{20};
// A disk that has not moved a block for so long hangs: computing again is surer.
inline constexpr std::chrono::seconds kMostDiskStall{1};

inline double MsBetween(EngineClock::time_point begin, EngineClock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

struct Engine::Job {
  RequestId id = 0;
  EngineRequest request;
  EngineCallbacks callbacks;
  std::shared_ptr<const DryBreakers> breakers;
  EngineClock::time_point submitted_at;
  bool is_cancelled = false;
  bool is_paused = false;  // in this step
  bool is_begun = false;   // was admitted once
  // One until the prompt has been read, then one per answer.
  std::vector<std::unique_ptr<EngineStream>> streams;
  EngineResult result;

  // Logits of every token being read are wanted.
  bool is_scored() const {
    return request.scores_prompt && request.top_logprobs && !is_prompt_read();
  }
  // Every token has to be evaluated, whatever is cached, and is of no use to others.
  bool is_mean_pooled() const { return request.pooling == Pooling::kMean; }
  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  bool is_prompt_read() const { return streams[0]->generated_tokens() > 0 || streams.size() > 1; }
  bool is_done() const {
    for (const auto& stream : streams) {
      if (!stream->is_done()) return false;
    }
    return true;
  }
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_JOB_H_
