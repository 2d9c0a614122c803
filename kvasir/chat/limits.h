// What one rendering may cost. A template is foreign code: without limits it could run for ever.
// Deliberately no wall clock: the same input always gives the same result or the same error.
#ifndef KVASIR_CHAT_LIMITS_H_
#define KVASIR_CHAT_LIMITS_H_

#include <cstdint>

namespace kvasir::chat {

struct ChatTemplateLimits {
  // The prompt, and each string on the way to it.
  int64_t max_output_bytes = int64_t{64} << 20;
  // All values alive at one time, the variables included.
  int64_t max_live_bytes = int64_t{256} << 20;
  // Expressions and statements evaluated, plus one per 64 bytes or 8 items that a built-in handles.
  // A chat of 1000 messages takes about 10^5; 10^8 take about five seconds. Some
  // look through the whole chat for each message: Gemma 4's takes 2 * 10^7 for 2400 of them.
  int64_t max_steps = 100'000'000;
  // Nested evaluations (expressions in statements in macros ...). Each takes about 1 KiB of stack.
  int max_depth = 1000;
  // Items of a range(), as in the sandbox of the reference.
  int64_t max_range = 100'000;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_LIMITS_H_
