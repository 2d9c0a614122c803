// ServerContext: what routes need to answer.
// Deliberately without sockets and threads: the server owns those.
#ifndef KVASIR_SERVER_SERVER_CONTEXT_H_
#define KVASIR_SERVER_SERVER_CONTEXT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kvasir/chat/chat_dialect.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/server/completion_service.h"
#include "kvasir/server/grammar_cache.h"
#include "kvasir/server/metrics.h"
#include "kvasir/server/request_fields.h"
#include "kvasir/server/request_record.h"
#include "kvasir/server/running_answers.h"

namespace kvasir {

// Set up once, then shared by all threads. Outlives every answer.
struct ServerContext {
  ModelBundle* bundle = nullptr;  // with a tokenizer; chats need a template
  CompletionService* service = nullptr;
  GrammarCache* grammars = nullptr;
  ChatDialect dialect;         // of the model's answers
  std::vector<Token> markers;  // special tokens among its markers: their text is kept
  bool reads_thoughts = true;  // false: they stay in the text
  const Metrics* metrics = nullptr;
  RunningAnswers* running = nullptr;
  LogSink log;
  RequestLogDetail log_detail = RequestLogDetail::kNone;
  std::string model_name;
  ChatDefaults defaults;
  int64_t created = 0;               // Unix seconds
  Pooling pooling = Pooling::kMean;  // of embeddings
  std::chrono::milliseconds ping_interval{5'000};
  std::chrono::milliseconds time_limit{0};  // per request; 0: none
  RequestObserver observer;
  // Runs a task on the work thread.
  std::function<void(std::function<void()> task)> post;
  // The same on a thread that may wait for the disk.
  std::function<void(std::function<void()> task)> post_file;
  bool has_web_page = true;
  bool has_drafts = false;
  std::string drafts;           // for people: which, or why there are none
  bool separates_keys = false;  // requests with other keys share no cached prefix
  std::string slot_folder;      // where slots are saved; empty: nowhere
  EngineClock::time_point started = EngineClock::now();
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_SERVER_CONTEXT_H_
