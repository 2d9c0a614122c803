#include "kvasir/server/server.h"

#include <array>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "kvasir/server/api_error.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/chat_response.h"
#include "kvasir/server/chat_service.h"
#include "kvasir/server/http_server.h"

namespace kvasir {
namespace {

// For an answer to notice its cancellation (one forward pass), and for the last bytes to leave.
constexpr std::chrono::milliseconds kCancelPatience{2'000};
constexpr std::chrono::milliseconds kDrain{1'000};

enum class RouteKind { kHealth, kModels, kChat };

struct Route {
  std::string_view path;
  RouteKind kind;
  std::string_view methods;  // for the Allow header
};

constexpr std::array kRoutes = {
    Route{"/health", RouteKind::kHealth, "GET, HEAD, OPTIONS"},
    Route{"/v1/health", RouteKind::kHealth, "GET, HEAD, OPTIONS"},
    Route{"/models", RouteKind::kModels, "GET, HEAD, OPTIONS"},
    Route{"/v1/models", RouteKind::kModels, "GET, HEAD, OPTIONS"},
    Route{"/chat/completions", RouteKind::kChat, "POST, OPTIONS"},
    Route{"/v1/chat/completions", RouteKind::kChat, "POST, OPTIONS"},
};

const Route* FindRoute(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  return nullptr;
}

// An unknown path or method is quoted up to here.
constexpr size_t kMaxQuotedBytes = 200;

std::string Quoted(std::string_view text) { return std::string(text.substr(0, kMaxQuotedBytes)); }

HttpResponse NotFound(std::string_view path) {
  return ErrorResponse({404, "there is nothing at '" + Quoted(path) + "'", "", "not_found"});
}

HttpResponse WrongMethod(const Route& route, std::string_view method) {
  HttpResponse response =
      ErrorResponse({405,
                     std::string(route.path) + " does not take " + Quoted(method) + "; it takes " +
                         std::string(route.methods),
                     "", "method_not_allowed"});
  response.headers.push_back({"Allow", std::string(route.methods)});
  return response;
}

// What generation_config.json recommends, over OpenAI's defaults.
ChatDefaults DefaultsOf(const ModelBundle& bundle) {
  const auto& recommended = bundle.config().generation;
  ChatDefaults defaults;
  defaults.vocab_size = bundle.sampleable_tokens();
  SamplingOptions& sampling = defaults.sampling;
  sampling.temperature =
      recommended.do_sample.value_or(true) ? recommended.temperature.value_or(1.0) : 0.0;
  sampling.top_k = recommended.top_k.value_or(0);
  sampling.top_p = recommended.top_p.value_or(1.0);
  sampling.min_p = recommended.min_p.value_or(0.0);
  sampling.repetition_penalty = recommended.repetition_penalty.value_or(1.0);
  return defaults;
}

HttpServerOptions HttpOptions(const ServerOptions& options) {
  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.max_header_bytes = options.max_header_bytes;
  http.max_body_bytes = options.max_body_bytes;
  http.max_total_body_bytes = options.max_total_body_bytes;
  http.max_connections = options.max_connections;
  http.max_unsent_bytes = options.max_unsent_bytes;
  http.send_buffer_bytes = options.send_buffer_bytes;
  http.idle_timeout = options.idle_timeout;
  http.body_timeout = options.body_timeout;
  http.write_timeout = options.write_timeout;
  http.log = options.log;
  http.error_body = [](int status, std::string_view message) {
    return ErrorJson({status, std::string(message), "", ""}).Dump();
  };
  return http;
}

}  // namespace

class Server::Impl {
 public:
  Impl(ModelBundle* bundle, const ServerOptions& options)
      : bundle_(bundle), options_(options), defaults_(DefaultsOf(*bundle)) {
    if (options_.model_name.empty()) options_.model_name = bundle->name();
    const Model& model = bundle->model();
    models_ = ModelsJson(options_.model_name, std::time(nullptr), model.context_tokens(),
                         model.vocab_size(), model.parameters(), model.weight_bytes())
                  .Dump();
  }

  Status Start() {
    ChatServiceOptions chat;
    chat.model_name = options_.model_name;
    chat.max_waiting = options_.max_waiting_requests;
    chat.ping_interval = options_.ping_interval;
    chat.chunk_tokens = options_.chunk_tokens;
    chat.log = options_.log;
    KVASIR_TRY(chat_, ChatService::Start(bundle_, std::move(chat)));
    KVASIR_TRY(http_, HttpServer::Start(HttpOptions(options_),
                                        [this](HttpRequest request, HttpReply reply) {
                                          Serve(std::move(request), std::move(reply));
                                        }));
    return {};
  }

  uint16_t port() const { return http_->port(); }

  void Stop() {
    const std::lock_guard one_at_a_time(stop_mutex_);
    if (is_stopped_) return;
    http_->StopAccepting();
    chat_->Stop(options_.stop_grace, kCancelPatience);
    // From here on an answer that is still on its way finds its client gone.
    http_->Stop(kDrain);
    chat_.reset();
    const std::lock_guard lock(state_mutex_);
    is_stopped_ = true;
    stopped_.notify_all();
  }

  void Wait() {
    std::unique_lock lock(state_mutex_);
    stopped_.wait(lock, [this] { return is_stopped_; });
  }

 private:
  // On the I/O thread.
  void Serve(HttpRequest request, HttpReply reply) {
    const Route* route = FindRoute(request.path);
    if (request.method == "OPTIONS") {
      const std::string methods(route == nullptr ? "GET, HEAD, POST, OPTIONS" : route->methods);
      return reply.Send({.status = 204, .content_type = "", .headers = {{"Allow", methods}}});
    }
    if (route == nullptr) return reply.Send(NotFound(request.path));
    const bool is_get = request.method == "GET" || request.method == "HEAD";
    if (route->kind == RouteKind::kChat ? request.method != "POST" : !is_get) {
      return reply.Send(WrongMethod(*route, request.method));
    }
    switch (route->kind) {
      case RouteKind::kHealth:
        return reply.Send({.body = R"({"status":"ok"})"});
      case RouteKind::kModels:
        return reply.Send({.body = models_});
      case RouteKind::kChat:
        return ServeChat(request.body, std::move(reply));
    }
  }

  void ServeChat(const std::string& body, HttpReply reply) {
    auto json = Json::Parse(body);
    if (!json.ok()) {
      return reply.Send(
          ErrorResponse(ToApiError(WithContext(json.error(), "the body is no valid JSON"))));
    }
    auto request = ParseChatRequest(*std::move(json), defaults_);
    if (!request.ok()) return reply.Send(ErrorResponse(ToApiError(request.error())));
    chat_->Submit(*std::move(request), std::move(reply));
  }

  ModelBundle* const bundle_;
  ServerOptions options_;
  const ChatDefaults defaults_;
  std::string models_;  // the body of /v1/models
  std::unique_ptr<ChatService> chat_;
  std::unique_ptr<HttpServer> http_;  // calls into chat_, so it goes first

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
