// ChatAnswer: carries one generation to its client, whole or as a stream.
// Deliberately not the generator's owner: it only listens to it.
#ifndef KVASIR_SERVER_CHAT_ANSWER_H_
#define KVASIR_SERVER_CHAT_ANSWER_H_

#include <atomic>
#include <chrono>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/engine/generator.h"
#include "kvasir/server/api_error.h"
#include "kvasir/server/chat_response.h"
#include "kvasir/server/http_reply.h"

namespace kvasir {

struct AnswerOptions {
  AnswerHead head;
  bool is_stream = false;
  bool includes_usage = false;
  // A stream that has shown nothing for this long says that it is alive, so that neither client
  // nor proxy gives up on a long prompt. From then on errors are events, not statuses.
  std::chrono::milliseconds ping_interval{5'000};
};

class ChatAnswer {
 public:
  // Both must outlive it. `stop`: true ends the generation whatever the client wants.
  ChatAnswer(AnswerOptions options, HttpReply* reply, const std::atomic<bool>* stop);

  // For Generator::Generate; valid while this object lives.
  GenerationCallbacks Callbacks();

  // Sends what is left. A generation that the client no longer waits for sends nothing.
  void Finish(const Result<GenerationResult>& result);
  // Instead of Finish, and also after a stream has begun.
  void Fail(const ApiError& error);

 private:
  void Begin();
  void Send(std::string_view event);
  void Ping(int64_t done, int64_t total);

  const AnswerOptions options_;
  HttpReply* const reply_;
  const std::atomic<bool>* const stop_;
  std::chrono::steady_clock::time_point last_sent_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_ANSWER_H_
