#include "kvasir/engine/generation.h"

#include <algorithm>
#include <utility>

namespace kvasir {
namespace {

Status Invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

double PerSecond(int64_t count, double ms) {
  return ms > 0 ? static_cast<double>(count) * 1000 / ms : 0;
}

}  // namespace

Status CheckGenerationRequest(const GenerationRequest& request, int64_t max_tokens,
                              const GenerationLimits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return Invalid("the prompt has no token");
  if (prompt > limits.context_tokens || (prompt == limits.context_tokens && max_tokens > 0)) {
    return Invalid("the prompt has " + std::to_string(prompt) +
                   " tokens and the model's context is " + std::to_string(limits.context_tokens) +
                   "; shorten the prompt");
  }
  for (const Token token : request.prompt) {
    if (token >= 0 && token < limits.vocab_size) continue;
    return Invalid("token " + std::to_string(token) +
                   " of the prompt is outside the vocabulary of " +
                   std::to_string(limits.vocab_size));
  }
  if (request.scores_prompt) {
    for (size_t i = 1; i < request.prompt.size(); ++i) {
      if (request.prompt[i] < limits.sampleable_tokens) continue;
      return Invalid("token " + std::to_string(request.prompt[i]) +
                     " of the prompt cannot be scored: the vocabulary has " +
                     std::to_string(limits.sampleable_tokens) + " tokens");
    }
  }
  if (request.top_logprobs.value_or(0) < 0) {
    return Invalid("top_logprobs is " + std::to_string(*request.top_logprobs) +
                   ", it must be 0 or more");
  }
  return request.sampling.Validate(limits.sampleable_tokens);
}

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

double GenerationStats::prefill_tokens_per_second() const {
  return PerSecond(prompt_tokens - cached_tokens, prefill_ms);
}

double GenerationStats::decode_tokens_per_second() const {
  // The first token comes out of the prefill.
  return PerSecond(std::max<int64_t>(generated_tokens - 1, 0), decode_ms);
}

}  // namespace kvasir
