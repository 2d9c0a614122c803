#include "kvasir/server/server.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/base/file_writer.h"
#include "kvasir/base/work_thread.h"
#include "kvasir/engine/cached_sequence_file.h"
#include "kvasir/engine/recommended_sampling.h"
#include "kvasir/server/access.h"
#include "kvasir/server/api_error.h"
#include "kvasir/server/engine_service.h"
#include "kvasir/server/http_server.h"
#include "kvasir/server/metrics.h"
#include "kvasir/server/prompt_cache_file.h"
#include "kvasir/server/routes.h"
#include "kvasir/server/server_context.h"

namespace kvasir {
namespace {

// For the last bytes to leave.
constexpr std::chrono::milliseconds kDrain{1'000};

// What takes less than a tenth of a second to tokenize is shorter.
constexpr size_t kLongBody = size_t{64} << 10;

// An unknown path or method is quoted up to here.
constexpr size_t kMaxQuotedBytes = 200;

std::string Quoted(std::string_view text) { return std::string(text.substr(0, kMaxQuotedBytes)); }

constexpr std::string_view kAnyMethod = "GET, HEAD, POST, DELETE, OPTIONS";

ApiError WrongKey(bool is_given) {
  return {401,
          is_given ? "the API key that came with the request is none of this server's"
                   : "this server wants an API key: send \"Authorization: Bearer KEY\"",
          "", "invalid_api_key"};
}

HttpResponse NotFound(std::string_view path, ErrorStyle style) {
  return ErrorResponse({404, "there is nothing at '" + Quoted(path) + "'", "", "not_found"}, style);
}

HttpResponse WrongMethod(const Route& route, std::string_view method) {
  HttpResponse response =
      ErrorResponse({405,
                     std::string(route.path) + " does not take " + Quoted(method) + "; it takes " +
                         std::string(route.methods),
                     "", "method_not_allowed"},
                    route.error_style);
  response.headers.push_back({"Allow", std::string(route.methods)});
  return response;
}

// What generation_config.json recommends, over OpenAI's defaults.
ChatDefaults DefaultsOf(const ModelBundle& bundle) {
  ChatDefaults defaults;
  defaults.vocab_size = bundle.sampleable_tokens();
  defaults.sampling = RecommendedSampling(bundle.config().generation, 1.0);
  return defaults;
}

HttpServerOptions HttpOptions(const ServerOptions& options, const AccessOptions* access,
                              Metrics* metrics) {
  HttpServerOptions http = options;
  http.refusal = [metrics, access](const HttpRequest& head, int status, std::string message) {
    metrics->AddResponse("none", status);
    const Route* const route = FindRoute(head.path);
    const auto style = route == nullptr ? ErrorStyle::kOpenAi : route->error_style;
    HttpResponse response = ErrorResponse({status, std::move(message), "", ""}, style);
    // Without them a page could not read why.
    const std::string_view methods = route == nullptr ? kAnyMethod : route->methods;
    response.headers = CorsHeaders(*access, head, methods);
    return response;
  };
  return http;
}

// "https://app.example", "http://localhost:8080"; "null": a file's
bool IsOrigin(const std::string& text) {
  if (text == "null") return true;
  const size_t scheme_end = text.find("://");
  return scheme_end != text.npos && scheme_end > 0 && scheme_end + 3 < text.size() &&
         text.find('/', scheme_end + 3) == text.npos;
}

Status Invalid(const std::string& message) { return {ErrorCode::kInvalidArgument, message}; }

}  // namespace

Status ServerOptions::Check() const {
  if (chunk_tokens < 1) return Invalid("server option 'chunk_tokens' must be 1 or more");
  if (host.empty()) {
    return Invalid(
        "the host is empty; 127.0.0.1 is this machine only, 0.0.0.0 everybody who reaches it");
  }
  for (const std::string& key : api_keys) {
    if (key.empty()) return Invalid("an API key must not be empty");
  }
  for (const std::string& origin : cors_origins) {
    if (origin != "*" && !IsOrigin(origin)) {
      return Invalid("'" + origin + "' is no origin of a web page; give one as in " +
                     "https://app.example, or *");
    }
  }
  for (const std::string& name : allowed_hosts) {
    if (name.empty() || name.find('/') != name.npos) {
      return Invalid("'" + name + "' is no name of a host; give one as in box.local, or *");
    }
  }
  // What could be written nowhere would be noticed when it is lost.
  if (!prompt_cache_file.empty()) {
    const Status status = FileWriter::Create(prompt_cache_file).status();
    if (!status.ok()) return WithContext(status.error(), "the file of the prompt cache");
  }
  for (const auto& [folder, what] : {std::pair{&slot_save_path, "the folder of slots"},
                                     std::pair{&swap_dir, "the folder of swapped caches"},
                                     std::pair{&cache_dir, "the folder of stored prefixes"}}) {
    if (folder->empty()) continue;
    const Status status = CheckWritableFolder(*folder);
    if (!status.ok()) return WithContext(status.error(), what);
  }
  return HttpServer::Check(HttpOptions(*this, nullptr, nullptr));
}

class Server::Impl {
 public:
  Impl(ModelBundle* bundle, const ServerOptions& options)
      : bundle_(bundle),
        options_(options),
        prompt_cache_(options.prompt_cache_file, options.prompt_cache_bytes, options.log) {
    access_ = {options.api_keys, options.cors_origins, options.allowed_hosts};
    context_.bundle = bundle;
    context_.metrics = &metrics_;
    context_.running = &running_;
    context_.log = options.log;
    context_.log_detail = options.log_detail;
    if (bundle->chat() != nullptr) ReadDialect();
    grammars_.emplace(bundle->tokenizer(), bundle->stop_tokens(), context_.markers);
    context_.grammars = &*grammars_;
    context_.model_name = options.model_name.empty() ? bundle->name() : options.model_name;
    context_.defaults = DefaultsOf(*bundle);
    context_.defaults.slots = options.max_streams;
    context_.created = std::time(nullptr);
    context_.pooling = options.pooling;
    context_.ping_interval = options.ping_interval;
    context_.time_limit = options.request_timeout;
    context_.has_web_page = options.has_web_page;
    context_.has_drafts = options.drafts != nullptr && options.drafts->is_used();
    context_.drafts = options.drafts != nullptr ? options.drafts->Describe() : "none";
    context_.separates_keys = !options.api_keys.empty();
    context_.slot_folder = options.slot_save_path;
    context_.post = [this](std::function<void()> task) { Post(work_, std::move(task)); };
    context_.post_file = [this](std::function<void()> task) { Post(files_, std::move(task)); };
    context_.observer = [this](const RequestRecord& record) { Record(record); };
  }

  Status Start() {
    KVASIR_TRY_OK(options_.Check());
    // Files of caches want it, and from here on the engine runs the model.
    std::string identity;
    if (!options_.prompt_cache_file.empty() || !options_.slot_save_path.empty() ||
        !options_.cache_dir.empty()) {
      KVASIR_TRY(identity, ModelIdentity(*bundle_));
    }
    EngineServiceOptions service;
    service.engine.store = {.dir = options_.cache_dir,
                            .max_bytes = options_.cache_dir_bytes,
                            .identity = std::move(identity),
                            .log = options_.log};
    service.engine.max_streams = options_.max_streams;
    service.engine.swap = {.dir = options_.swap_dir, .max_bytes = options_.swap_bytes};
    service.engine.scheduler.step_tokens = options_.chunk_tokens;
    service.engine.scheduler.mixed_step_tokens =
        std::min(options_.chunk_tokens, service.engine.scheduler.mixed_step_tokens);
    service.engine.max_drafts = options_.max_drafts;
    service.drafts = options_.drafts;
    service.max_waiting = options_.max_waiting_requests;
    KVASIR_TRY(service_, EngineService::Start(bundle_, std::move(service)));
    context_.service = service_.get();
    if (bundle_->chat() == nullptr) {
      Log(options_.log, LogLevel::kWarning,
          "the model has no chat template: chats are refused, completions and embeddings work");
    }
    if (!options_.cache_dir.empty()) {
      const PrefixStoreStats stored = service_->status().engine.store;
      Log(options_.log, LogLevel::kInfo,
          options_.cache_dir + ": " + std::to_string(stored.files) + " stored prefixes, " +
              std::to_string(stored.bytes) + " bytes");
    }
    prompt_cache_.Load(*service_);
    KVASIR_TRY(http_, HttpServer::Start(HttpOptions(options_, &access_, &metrics_),
                                        [this](HttpRequest request, HttpReply reply) {
                                          Serve(std::move(request), std::move(reply));
                                        }));
    return {};
  }

  uint16_t port() const { return http_->port(); }

  void Stop() {
    const std::lock_guard one_at_a_time(stop_mutex_);
    if (is_stopped_ || http_ == nullptr) return;
    http_->StopAccepting();
    service_->Stop(options_.stop_grace);
    files_.Stop();
    prompt_cache_.Save(*service_);
    // From here on an answer that is still on its way finds its client gone.
    http_->Stop(kDrain);
    work_.Stop();
    long_work_.Stop();
    service_.reset();
    const std::lock_guard lock(state_mutex_);
    is_stopped_ = true;
    stopped_.notify_all();
  }

  void Wait() {
    std::unique_lock lock(state_mutex_);
    stopped_.wait(lock, [this] { return is_stopped_; });
  }

 private:
  void ReadDialect() {
    context_.dialect = DialectOf(bundle_->chat()->source(), options_.tool_syntax);
    context_.reads_thoughts = options_.reads_thoughts;
    context_.markers = bundle_->MarkersOf(context_.dialect);
  }

  // On the I/O thread.
  void Serve(HttpRequest request, HttpReply reply) {
    const Route* route = FindRoute(request.path);
    reply.ObserveStatus([this, name = route == nullptr ? "other" : route->path](int status) {
      metrics_.AddResponse(name, status);
    });
    const std::string_view methods = route == nullptr ? kAnyMethod : route->methods;
    for (HttpHeader& header : CorsHeaders(access_, request, methods)) {
      reply.AddHeader(std::move(header));
    }
    if (const std::string refusal = RefusalOfPage(access_, request); !refusal.empty()) {
      const auto style = route == nullptr ? ErrorStyle::kOpenAi : route->error_style;
      return reply.Send(ErrorResponse({403, refusal, "", "forbidden_page"}, style));
    }
    if (request.method == "OPTIONS") {
      return reply.Send(
          {.status = 204, .content_type = "", .headers = {{"Allow", std::string(methods)}}});
    }
    if (route == nullptr) return reply.Send(NotFound(request.path, ErrorStyle::kOpenAi));
    // Behind an id there is one thing to do, or nothing that could be got.
    const bool is_action =
        route->path.size() > 1 && route->path.ends_with('/') && !route->Takes("GET");
    if (!route->Takes(request.method) && is_action) {
      return reply.Send(NotFound(request.path, route->error_style));
    }
    if (!route->Takes(request.method)) {
      return reply.Send(WrongMethod(*route, request.method));
    }
    if (route->access == RouteAccess::kWithKey && !HasKey(access_, request)) {
      return reply.Send(ErrorResponse(WrongKey(BringsKey(request)), route->error_style));
    }
    if (request.method != "POST") return route->handler(context_, request, std::move(reply));
    // Parsing, templates and tokenization take their time: neither sockets nor the engine wait, nor
    // short requests for long ones, of which 16 MiB take many seconds.
    WorkThread& thread = request.body.size() < kLongBody ? work_ : long_work_;
    Post(thread, [this, route, request = std::move(request), reply = std::move(reply)]() mutable {
      if (reply.is_client_gone()) return;  // while others were at it
      route->handler(context_, request, std::move(reply));
    });
  }

  // std::function wants what can be copied, and a reply cannot.
  template <typename Task>
  static void Post(WorkThread& thread, Task task) {
    const auto shared = std::make_shared<Task>(std::move(task));
    if (!thread.Post([shared] { (*shared)(); })) (*shared)();
  }

  void Record(const RequestRecord& record) {
    metrics_.Add(record);
    if (options_.request_log) return options_.request_log(record);
    const bool is_failure = record.status >= 500;
    Log(options_.log, is_failure ? LogLevel::kWarning : LogLevel::kInfo, RecordLine(record));
  }

  ModelBundle* const bundle_;
  const ServerOptions options_;
  AccessOptions access_;
  Metrics metrics_;
  RunningAnswers running_;
  std::optional<GrammarCache> grammars_;
  ServerContext context_;
  std::unique_ptr<EngineService> service_;
  PromptCacheFile prompt_cache_;
  WorkThread files_;                  // calls into service_, so it goes first
  WorkThread work_;                   // calls into both, so it goes first
  WorkThread long_work_;              // likewise
  std::unique_ptr<HttpServer> http_;  // calls into both

  std::mutex stop_mutex_;
  std::mutex state_mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { impl_->Stop(); }

Result<std::unique_ptr<Server>> Server::Start(ModelBundle* bundle, const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(bundle, options);
  KVASIR_TRY_OK(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->port(); }
void Server::Stop() { impl_->Stop(); }
void Server::Wait() { impl_->Wait(); }

}  // namespace kvasir
