// kvasir serve: the HTTP server around one model.
// Deliberately no TLS and no users: a proxy in front of it does that better.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/draft_flags.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/stop_signals.h"
#include "kvasir/server/http_message.h"
#include "kvasir/server/server.h"

namespace kvasir {
namespace {

void PrintLogLine(const Json& line) { std::fprintf(stderr, "%s\n", line.Dump().c_str()); }

// The least level that is logged, and what of requests. The library has one level for details.
struct LogChoice {
  LogLevel least = LogLevel::kInfo;
  RequestLogDetail detail = RequestLogDetail::kNone;
};

Result<LogChoice> LogChoiceFromName(const std::string& name) {
  if (name == "error") return LogChoice{LogLevel::kError, RequestLogDetail::kNone};
  if (name == "warning") return LogChoice{LogLevel::kWarning, RequestLogDetail::kNone};
  if (name == "info") return LogChoice{LogLevel::kInfo, RequestLogDetail::kNone};
  if (name == "debug") return LogChoice{LogLevel::kDebug, RequestLogDetail::kParameters};
  if (name == "trace") return LogChoice{LogLevel::kDebug, RequestLogDetail::kTokens};
  return Error{ErrorCode::kInvalidArgument,
               "--log-level must be error, warning, info, debug or trace, not '" + name + "'"};
}

LogSink AtLeast(LogLevel least, LogSink sink) {
  return [least, sink = std::move(sink)](LogLevel level, std::string_view line) {
    if (level >= least) Log(sink, level, line);
  };
}

std::string_view LevelName(LogLevel level) {
  if (level == LogLevel::kDebug) return "debug";
  if (level == LogLevel::kInfo) return "info";
  return level == LogLevel::kError ? "error" : "warning";
}

void LogAsJson(LogLevel level, std::string_view message) {
  PrintLogLine(Json::Object{{"time", static_cast<int64_t>(std::time(nullptr))},
                            {"level", LevelName(level)},
                            {"message", message}});
}

RequestObserver LogRequestsAsJson(LogLevel least) {
  return [least](const RequestRecord& record) {
    if ((record.status >= 500 ? LogLevel::kWarning : LogLevel::kInfo) < least) return;
    Json line = Json::Object{{"time", static_cast<int64_t>(std::time(nullptr))},
                             {"level", record.status >= 500 ? "warning" : "info"},
                             {"message", "request"}};
    const Json fields = RecordJson(record);
    for (const auto& [name, value] : fields.as_object()) line.Set(name, value);
    PrintLogLine(line);
  };
}

class ServeCommand final : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string help() const override {
    return "serve the HTTP APIs of OpenAI, Anthropic and llama-server";
  }

  void Declare(Flags& flags) override {
    model_.Declare(flags);
    draft_.Declare(flags);
    flags.Add("--host", &host_, "address to listen on; 127.0.0.1 is this machine only");
    flags.Add("--port", &port_, "port to listen on; 0: any free one");
    flags.Add("-a,--alias", &alias_, "name of the model in answers; default: the folder's");
    flags.Add("--api-key", &api_keys_,
              "a key that requests must bring; may be given several times");
    flags.Add("--cors-origin", &cors_origins_,
              "a web page's origin that may read answers, or *; may be given several times");
    flags.Add(
        "--allowed-host", &allowed_hosts_,
        "a name that browsers may use for this machine, beside localhost, or *; without keys");
    flags.Add("--parallel", &max_streams_, "answers made at once; they share the cache");
    flags.Add("--swap-dir", &swap_dir_,
              "folder for the caches of answers that others displace; default: computed again");
    flags.Add("--swap-bytes", &swap_bytes_,
              "upper bound of what lies there, e.g. 20G; 0: half of what the disk has free");
    flags.Add("--cache-dir", &cache_dir_,
              "folder for what is cached: it outlives memory and the server; default: none");
    flags.Add("--cache-dir-bytes", &cache_dir_bytes_,
              "upper bound of what lies there, e.g. 50G; 0: it and half of what the disk has free");
    flags.Add("--ubatch-size", &chunk_tokens_, "tokens per forward pass");
    flags.Add("--pooling", &pooling_, "embeddings are the mean of all tokens, or of the last");
    flags.Add("--timeout", &timeout_s_, "seconds for a body to arrive and a client to read");
    flags.Add("--request-timeout", &request_timeout_s_,
              "seconds after which an answer ends as if it had its length; 0: none");
    flags.Add("--max-queue", &max_queue_, "requests that may wait; more get 503");
    flags.Add("--max-connections", &max_connections_, "connections; more get 503");
    flags.Add("--max-body-bytes", &max_body_bytes_, "a request's body at most; more is 413");
    flags.Add("--max-header-bytes", &max_header_bytes_, "a request's header at most; more is 431");
    flags.Add("--no-webui", &no_web_page_, "serve no web page at /");
    flags.Add("--prompt-cache", &prompt_cache_,
              "a file: what is cached is read from it when starting and saved when stopping");
    flags.Add("--slot-save-path", &slot_save_path_,
              "folder for conversations that POST /slots/{id} saves and restores");
    flags.Add("--prompt-cache-bytes", &prompt_cache_bytes_,
              "save at most so much, e.g. 2G; 0: all");
    flags.Add("--log-level", &log_level_,
              "error, warning, info, debug (what requests ask for) or trace (their tokens)");
    flags.Add("--reasoning-format", &reasoning_format_,
              "auto, deepseek: thoughts are told apart from answers; none: they stay in the text");
    flags.Add(
        "--tool-format", &tool_format_,
        "how the model writes calls: " + ToolSyntaxNames() + "; default: as its chat template");
    flags.Add("--log-json", &log_json_, "log one JSON object per line");
  }

  Status Run() override {
    StopSignals signals;
    KVASIR_TRY(ServerOptions options, Options());
    KVASIR_TRY(const LogChoice logged, LogChoiceFromName(log_level_));
    KVASIR_TRY_OK(draft_.Prepare(model_));
    KVASIR_TRY_OK(options.Check());
    const LogSink log = log_json_ ? LogSink(LogAsJson) : LogSink(LogToStderr);
    ModelFlags served = model_;
    served.log = log;
    served.engine_step_tokens = chunk_tokens_;
    served.engine_streams = max_streams_;
    served.text_need = TextNeed::kTokenizer;
    KVASIR_TRY(const auto bundle, served.Load());
    KVASIR_TRY(const auto drafts, draft_.Load(served, *bundle));
    options.drafts = drafts.get();
    options.max_drafts = draft_.MaxDrafts();
    options.log = AtLeast(logged.least, log);
    options.log_detail = logged.detail;
    if (log_json_) options.request_log = LogRequestsAsJson(logged.least);
    signals.Keep();
    KVASIR_TRY(const auto server, Server::Start(bundle.get(), options));
    log(LogLevel::kInfo, "listening on http://" + HostAndPort(host_, server->port()));
    signals.Wait();
    log(LogLevel::kInfo, "stopping");
    server->Stop();
    server->Wait();
    return {};
  }

 private:
  Result<ServerOptions> Options() const {
    constexpr int64_t kMostSeconds = 1'000'000;
    constexpr int64_t kMostBodyBytes = int64_t{1} << 30;
    constexpr int64_t kMostWaiting = 1'000'000;
    KVASIR_TRY_OK(CheckRange("--port", port_, 0, 65535));
    KVASIR_TRY_OK(CheckRange("--parallel", max_streams_, 1, 4096));
    KVASIR_TRY_OK(CheckRange("--ubatch-size", chunk_tokens_, 1, 1 << 20));
    KVASIR_TRY_OK(CheckRange("--timeout", timeout_s_, 1, kMostSeconds));
    KVASIR_TRY_OK(CheckRange("--request-timeout", request_timeout_s_, 0, kMostSeconds));
    KVASIR_TRY_OK(CheckRange("--max-queue", max_queue_, 0, kMostWaiting));
    KVASIR_TRY_OK(CheckRange("--max-connections", max_connections_, 1, kMostWaiting));
    const auto bytes = [&](const std::string& text, int64_t least, int64_t most,
                           const char* flag) -> Result<int64_t> {
      KVASIR_TRY(const size_t parsed, ParseBytes(flag, text));
      KVASIR_TRY_OK(CheckRange(flag, static_cast<int64_t>(parsed), least, most));
      return static_cast<int64_t>(parsed);
    };
    const std::optional<Pooling> pooling = PoolingFromName(pooling_);
    if (!pooling) {
      return {ErrorCode::kInvalidArgument,
              "--pooling must be mean or last, not '" + pooling_ + "'"};
    }
    constexpr int64_t kMostCacheBytes = int64_t{1} << 50;
    ServerOptions options;
    KVASIR_TRY(options.max_body_bytes,
               bytes(max_body_bytes_, 1, kMostBodyBytes, "--max-body-bytes"));
    KVASIR_TRY(options.max_header_bytes,
               bytes(max_header_bytes_, 256, 16 << 20, "--max-header-bytes"));
    KVASIR_TRY(const int64_t prompt_cache_bytes,
               bytes(prompt_cache_bytes_, 0, kMostCacheBytes, "--prompt-cache-bytes"));
    options.prompt_cache_file = prompt_cache_;
    options.slot_save_path = slot_save_path_;
    options.prompt_cache_bytes = static_cast<size_t>(prompt_cache_bytes);
    options.pooling = *pooling;
    options.host = host_;
    options.port = static_cast<uint16_t>(port_);
    options.model_name = alias_;
    options.api_keys = api_keys_;
    options.cors_origins = cors_origins_;
    options.allowed_hosts = allowed_hosts_;
    options.max_streams = max_streams_;
    options.has_web_page = !no_web_page_;
    options.swap_dir = swap_dir_;
    KVASIR_TRY(options.swap_bytes, ParseBytes("--swap-bytes", swap_bytes_));
    if (options.swap_bytes > 0 && swap_dir_.empty()) {
      return {ErrorCode::kInvalidArgument, "--swap-bytes means nothing without --swap-dir"};
    }
    options.cache_dir = cache_dir_;
    KVASIR_TRY(options.cache_dir_bytes, ParseBytes("--cache-dir-bytes", cache_dir_bytes_));
    if (options.cache_dir_bytes > 0 && cache_dir_.empty()) {
      return {ErrorCode::kInvalidArgument, "--cache-dir-bytes means nothing without --cache-dir"};
    }
    if (prompt_cache_bytes > 0 && prompt_cache_.empty()) {
      return {ErrorCode::kInvalidArgument,
              "--prompt-cache-bytes means nothing without --prompt-cache"};
    }
    options.chunk_tokens = chunk_tokens_;
    options.body_timeout = std::chrono::seconds(timeout_s_);
    options.write_timeout = std::chrono::seconds(timeout_s_);
    options.request_timeout = std::chrono::seconds(request_timeout_s_);
    options.max_waiting_requests = max_queue_;
    options.max_connections = max_connections_;
    if (reasoning_format_ != "auto" && reasoning_format_ != "deepseek" &&
        reasoning_format_ != "none") {
      return {ErrorCode::kInvalidArgument, "--reasoning-format must be auto, deepseek or none"};
    }
    options.reads_thoughts = reasoning_format_ != "none";
    if (!tool_format_.empty()) {
      options.tool_syntax = ToolSyntaxNamed(tool_format_);
      if (!options.tool_syntax) {
        return {ErrorCode::kInvalidArgument,
                "--tool-format '" + tool_format_ + "' is unknown; there are " + ToolSyntaxNames()};
      }
    }
    options.max_total_body_bytes = std::max(options.max_total_body_bytes, options.max_body_bytes);
    return options;
  }

  ModelFlags model_;
  DraftFlags draft_;
  std::string host_ = "127.0.0.1";
  std::string alias_;
  std::string reasoning_format_ = "auto";
  std::string tool_format_;
  std::vector<std::string> api_keys_;
  std::vector<std::string> cors_origins_;
  std::vector<std::string> allowed_hosts_;
  std::string pooling_ = "mean";
  int64_t port_ = 8080;
  int64_t max_streams_ = 16;
  std::string swap_dir_;
  std::string swap_bytes_ = "0";
  std::string cache_dir_;
  std::string cache_dir_bytes_ = "0";
  int64_t chunk_tokens_ = 512;
  int64_t timeout_s_ = 120;
  int64_t request_timeout_s_ = 0;
  int64_t max_queue_ = 64;
  int64_t max_connections_ = 256;
  std::string max_body_bytes_ = "16M";
  std::string max_header_bytes_ = "64K";
  std::string log_level_ = "info";
  std::string prompt_cache_;
  std::string slot_save_path_;
  std::string prompt_cache_bytes_ = "0";
  bool log_json_ = false;
  bool no_web_page_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace kvasir
