// ChatService: the engine thread: takes chat requests from a bounded inbox and answers them one
// after the other, on one sequence that keeps what it knows from request to request.
// Deliberately no batching: that is the engine's, once it has a scheduler.
#ifndef KVASIR_SERVER_CHAT_SERVICE_H_
#define KVASIR_SERVER_CHAT_SERVICE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kvasir/base/log.h"
#include "kvasir/base/result.h"
#include "kvasir/engine/generator.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/http_reply.h"

namespace kvasir {

struct ChatServiceOptions {
  std::string model_name;
  int64_t max_waiting = 64;                        // requests beyond the one that is being answered
  std::chrono::milliseconds ping_interval{5'000};  // AnswerOptions
  int64_t chunk_tokens = 512;  // of a prompt per forward pass, between two looks at the client
  LogSink log;
};

class ChatService {
 public:
  // The bundle must outlive it, and nobody else may use its pool. ERRORS: kFailedPrecondition for
  // a model without tokenizer or chat template; as ModelBundle::NewSequence.
  static Result<std::unique_ptr<ChatService>> Start(ModelBundle* bundle,
                                                    ChatServiceOptions options);
  // Cancels what runs.
  ~ChatService();

  // Answers, now or later; a full inbox and a stopping service answer 503. THREADS: any.
  void Submit(ChatRequest request, HttpReply reply);

  // Waiting requests are answered 503 from now on. The running one may end within `grace`, then it
  // is cancelled: within one forward pass. Returns once nothing runs, or after `grace` and
  // `patience`; the thread ends when the service is destroyed. THREADS: any.
  void Stop(std::chrono::milliseconds grace, std::chrono::milliseconds patience);

 private:
  struct Job {
    ChatRequest request;
    HttpReply reply;
  };

  ChatService(ModelBundle* bundle, CachedSequence sequence, ChatServiceOptions options);

  void Run();
  void Answer(Job& job);
  void LogEnd(const HttpReply& reply, const Result<GenerationResult>& result) const;

  ModelBundle* const bundle_;
  const ChatServiceOptions options_;
  CachedSequence sequence_;  // the engine thread's
  Generator generator_;      // the engine thread's

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::list<Job> waiting_;
  bool is_busy_ = false;
  bool is_stopping_ = false;
  std::atomic<bool> cancels_ = false;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_SERVICE_H_
