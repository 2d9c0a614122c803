// Server: a model behind the HTTP APIs of OpenAI, Anthropic and llama-server (routes.cc).
// Deliberately without TLS; docs/server.md says what clients can rely on.
#ifndef KVASIR_SERVER_SERVER_H_
#define KVASIR_SERVER_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/log.h"
#include "kvasir/base/result.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/engine/draft_source.h"
#include "kvasir/engine/hidden_pool.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/server/http_server.h"
#include "kvasir/server/request_record.h"

namespace kvasir {

// Beside HTTP's, whose `refusal` is the server's own.
struct ServerOptions : HttpServerOptions {
  std::string model_name;    // in answers; empty: the bundle's
  int64_t max_streams = 16;  // answers being made at once; they share the cache
  std::string swap_dir;      // SwapOptions: for caches of answers that others displace
  uint64_t swap_bytes = 0;
  std::string cache_dir;  // PrefixStoreOptions: for what is cached
  uint64_t cache_dir_bytes = 0;
  int64_t max_waiting_requests = 64;  // with no answer begun; more get 503
  Pooling pooling = Pooling::kMean;   // of embeddings
  int64_t chunk_tokens = 512;         // of a prompt per forward pass; no influence on results
  std::chrono::milliseconds ping_interval{5'000};  // silence after which a stream shows life
  std::chrono::milliseconds stop_grace{5'000};     // for the running answer when stopping
  std::chrono::milliseconds request_timeout{0};    // then an answer ends; 0: none
  std::optional<ToolSyntax> tool_syntax;           // of calls; unset: as the chat template has them
  bool reads_thoughts = true;                      // false: thoughts stay in the text
  const DraftSource* drafts = nullptr;             // who guesses ahead; outlives the server
  int64_t max_drafts = 16;                         // per step, where a request does not say
  std::vector<std::string> api_keys;               // one of them opens everything; none: open
  std::vector<std::string> cors_origins;           // web pages that may read answers; "*": all
  // Names that a server without keys on a loopback address answers to, beside localhost; "*": all.
  std::vector<std::string> allowed_hosts;
  bool has_web_page = true;  // at "/"
  // The prefix cache is read from this file when starting, and written to it when stopping, as far
  // as it has at most so many bytes; 0: all of it. A file that cannot be used is no error: the log
  // says so. Empty: neither.
  std::string prompt_cache_file;
  std::string slot_save_path;  // folder for POST /slots/{id}; empty: none
  size_t prompt_cache_bytes = 0;
  RequestLogDetail log_detail = RequestLogDetail::kNone;  // in lines of LogLevel::kDebug
  // Gets what is known of every answered request; unset: a line goes to `log`. THREADS: any.
  RequestObserver request_log;

  // What can be said without a model: also whether somebody else listens there. ERRORS:
  // kInvalidArgument, kNotFound and kIo of folders, kIo of host and port.
  Status Check() const;
};

class Server {
 public:
  // Listens and serves. The bundle must outlive the server, which has its cache pool for itself.
  // ERRORS: kFailedPrecondition (no tokenizer), kIo (host and port),
  // kInvalidArgument (options), kResourceExhausted.
  static Result<std::unique_ptr<Server>> Start(ModelBundle* bundle, const ServerOptions& options);
  // As Stop.
  ~Server();

  // The port that it listens on.
  uint16_t port() const;

  // No new requests; those that were accepted may end within `stop_grace`, then who still waits
  // gets 503 and running answers are cancelled; connections close. Returns when all this is done.
  // Idempotent. THREADS: any, but not a signal handler.
  void Stop();
  // Returns once Stop has been called, by whomever, and is done.
  void Wait();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_SERVER_H_
