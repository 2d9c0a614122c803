#include "kvasir/server/metrics.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace kvasir {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

void Describe(std::string_view name, std::string_view type, std::string_view help,
              std::string* text) {
  text->append("# HELP ").append(name).append(" ").append(help).append("\n");
  text->append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void Append(std::string_view name, std::string_view type, std::string_view help, uint64_t value,
            std::string* text) {
  Describe(name, type, help, text);
  text->append(name).append(" ").append(std::to_string(value)).append("\n");
}

}  // namespace

void Metrics::Add(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  ++requests_[record.status];
  prompt_tokens_ += record.prompt_tokens;
  cached_tokens_ += record.cached_tokens;
  generated_tokens_ += record.generated_tokens;
  if (!record.first_token_ms) return;
  const double seconds = *record.first_token_ms / 1000;
  ++first_token_count_;
  first_token_seconds_ += seconds;
  const auto bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), seconds);
  if (bucket != kBuckets.end()) ++first_token_counts_[bucket - kBuckets.begin()];
}

std::string Metrics::Render(const ServiceStatus& status) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  Describe("kvasir_requests_total", "counter",
           "Requests for answers that have ended, by status; 0: the client had gone.", &text);
  for (const auto& [code, count] : requests_) {
    text += "kvasir_requests_total{status=\"" + std::to_string(code) + "\"} " +
            std::to_string(count) + "\n";
  }
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    Append(name, "counter", help, static_cast<uint64_t>(value), &text);
  };
  counter("kvasir_prompt_tokens_total", "Tokens of prompts, cached ones included.", prompt_tokens_);
  counter("kvasir_cached_tokens_total", "Tokens of prompts that were found in the cache.",
          cached_tokens_);
  counter("kvasir_generated_tokens_total", "Tokens generated.", generated_tokens_);

  const std::string_view first = "kvasir_time_to_first_token_seconds";
  Describe(first, "histogram", "From the arrival of a request to its first token.", &text);
  int64_t below = 0;
  for (size_t i = 0; i < kBuckets.size(); ++i) {
    below += first_token_counts_[i];
    text.append(first).append("_bucket{le=\"").append(Number(kBuckets[i])).append("\"} ");
    text.append(std::to_string(below)).append("\n");
  }
  text.append(first).append("_bucket{le=\"+Inf\"} ").append(std::to_string(first_token_count_));
  text.append("\n").append(first).append("_sum ").append(Number(first_token_seconds_));
  text.append("\n").append(first).append("_count ").append(std::to_string(first_token_count_));
  text += "\n";

  const auto gauge = [&](std::string_view name, std::string_view help, uint64_t value) {
    Append(name, "gauge", help, value, &text);
  };
  const auto busy = std::count_if(status.slots.begin(), status.slots.end(),
                                  [](const SlotStatus& slot) { return slot.is_processing; });
  gauge("kvasir_requests_running", "Answers being generated.", static_cast<uint64_t>(busy));
  gauge("kvasir_requests_waiting", "Requests in the queue.", static_cast<uint64_t>(status.waiting));
  gauge("kvasir_cache_used_bytes", "Bytes of cache blocks in use.", status.cache_used_bytes);
  gauge("kvasir_cache_budget_bytes", "Bytes the cache may use.", status.cache_budget_bytes);
  return text;
}

}  // namespace kvasir
