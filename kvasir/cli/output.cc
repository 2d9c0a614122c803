#include "kvasir/cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "kvasir/cli/printable.h"

namespace kvasir {
namespace {

volatile std::sig_atomic_t interrupt_pending = 0;

void OnInterrupt(int) {
  if (interrupt_pending != 0) _exit(130);
  interrupt_pending = 1;
}

}  // namespace

Status Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return {ErrorCode::kIo, std::string("cannot write to standard output: ") + strerror(errno)};
  }
  return {};
}

Status PrintAnswer(std::string_view text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  return is_terminal ? Print(Printable(std::string(text))) : Print(text);
}

Status PrintJson(const Json& value) { return Print(value.Dump() + "\n"); }

void LogToStderr(LogLevel level, std::string_view line) {
  const char* prefix = level == LogLevel::kWarning ? "warning: "
                       : level == LogLevel::kError ? "error: "
                                                   : "";
  std::fprintf(stderr, "%s%s\n", prefix, Printable(std::string(line)).c_str());
}

std::string FormatBytes(size_t bytes) {
  char text[32];
  const double mebibytes = static_cast<double>(bytes) / (1024.0 * 1024.0);
  if (mebibytes >= 1) {
    std::snprintf(text, sizeof(text), "%.1f MiB", mebibytes);
  } else {
    std::snprintf(text, sizeof(text), "%.1f KiB", static_cast<double>(bytes) / 1024);
  }
  return text;
}

std::string StatsLine(const GenerationStats& stats) {
  char text[256];
  std::snprintf(
      text, sizeof(text),
      "prompt %lld tokens (%lld from cache) at %.0f tokens/s | answer %lld tokens at %.1f "
      "tokens/s | KV cache %s",
      static_cast<long long>(stats.prompt_tokens), static_cast<long long>(stats.cached_tokens),
      stats.prefill_tokens_per_second(), static_cast<long long>(stats.generated_tokens),
      stats.decode_tokens_per_second(), FormatBytes(stats.kv_bytes).c_str());
  std::string line = text;
  if (stats.drafted_tokens > 0) {
    line += " | " + std::to_string(stats.accepted_drafts) + " of " +
            std::to_string(stats.drafted_tokens) + " drafts right";
  }
  return line;
}

Json StatsJson(const GenerationStats& stats) {
  Json json;
  json.Set("prompt_tokens", stats.prompt_tokens);
  json.Set("cached_tokens", stats.cached_tokens);
  json.Set("generated_tokens", stats.generated_tokens);
  json.Set("drafted_tokens", stats.drafted_tokens);
  json.Set("accepted_drafts", stats.accepted_drafts);
  json.Set("prefill_ms", stats.prefill_ms);
  json.Set("decode_ms", stats.decode_ms);
  json.Set("prefill_tokens_per_second", stats.prefill_tokens_per_second());
  json.Set("decode_tokens_per_second", stats.decode_tokens_per_second());
  json.Set("kv_bytes", static_cast<uint64_t>(stats.kv_bytes));
  return json;
}

void ShowPrefillProgress(int64_t done, int64_t total) {
  if (total < 1024 || isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\rprompt %lld/%lld%s", static_cast<long long>(done),
               static_cast<long long>(total), done == total ? "\n" : "");
}

void ShowWriteProgress(std::string_view what, uint64_t done, uint64_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%.*s %s of %s%s", static_cast<int>(what.size()), what.data(),
               FormatBytes(done).c_str(), FormatBytes(total).c_str(), done == total ? "\n" : "  ");
}

void InstallInterruptHandler() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a waiting read returns
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupt_pending != 0; }
void ClearInterrupt() { interrupt_pending = 0; }

}  // namespace kvasir
