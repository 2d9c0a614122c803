// What came back for one request, reduced to what must be the same every time.
// Deliberately strict: a stream without its end, or an answer without its counts, is no answer.
#ifndef KVASIR_TESTS_LOAD_LOAD_ANSWER_H_
#define KVASIR_TESTS_LOAD_LOAD_ANSWER_H_

#include <cstdint>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/server/test_client.h"
#include "tests/load/load_requests.h"

namespace kvasir {

struct LoadAnswer {
  // Texts, finish reasons and, where asked for, every token with its scores; the same for a whole
  // answer and for the streamed one.
  std::string bits;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
};

// The body to send: streams ask for their counts.
std::string BodyOf(const LoadRequest& request, bool is_stream);

// ERRORS: kCorrupt for a response that is none to this request; kResourceExhausted for a 503 that
// says when to come back.
Result<LoadAnswer> ReadAnswer(const LoadRequest& request, const WireResponse& response);

}  // namespace kvasir

#endif  // KVASIR_TESTS_LOAD_LOAD_ANSWER_H_
