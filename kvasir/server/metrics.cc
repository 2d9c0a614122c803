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

void AppendHistogram(std::string_view name, std::string_view help, const LatencyHistogram& times,
                     std::string* text) {
  Describe(name, "histogram", help, text);
  const auto& buckets = LatencyHistogram::kBuckets;
  for (size_t i = 0; i <= buckets.size(); ++i) {
    text->append(name).append("_bucket{le=\"");
    text->append(i < buckets.size() ? Number(buckets[i]) : "+Inf").append("\"} ");
    text->append(std::to_string(times.CountUpTo(i))).append("\n");
  }
  text->append(name).append("_sum ").append(Number(times.seconds())).append("\n");
  text->append(name).append("_count ").append(std::to_string(times.count())).append("\n");
}

void AppendGauges(const ServiceStatus& status, const EnginePicture& picture, std::string* text) {
  const auto gauge = [&](std::string_view name, std::string_view help, uint64_t value) {
    Append(name, "gauge", help, value, text);
  };
  const auto busy = std::count_if(status.slots.begin(), status.slots.end(),
                                  [](const SlotStatus& slot) { return slot.is_processing; });
  gauge("kvasir_requests_running", "Answers being generated.", static_cast<uint64_t>(busy));
  gauge("kvasir_requests_waiting", "Requests in the queue.", static_cast<uint64_t>(status.waiting));
  gauge("kvasir_cache_used_bytes", "Bytes of cache blocks in use.", status.cache_used_bytes);
  gauge("kvasir_cache_budget_bytes", "Bytes the cache may use.", status.cache_budget_bytes);
  Describe("kvasir_cache_bytes", "gauge",
           "Bytes of cache blocks (live: of running answers, cached: that wait to be found) and, "
           "beside them, of the index of prefixes and of activations.",
           text);
  const size_t used = picture.stats.used_bytes;
  const std::pair<const char*, size_t> kinds[] = {
      {"live", picture.live_bytes},
      {"cached", used - std::min(used, picture.live_bytes)},
      {"index", picture.stats.index_bytes},
      {"scratch", picture.stats.scratch_bytes}};
  for (const auto& [kind, bytes] : kinds) {
    *text +=
        "kvasir_cache_bytes{kind=\"" + std::string(kind) + "\"} " + std::to_string(bytes) + "\n";
  }
  gauge("kvasir_swap_bytes", "Bytes of caches on disk.", status.engine.swap_bytes);
  gauge("kvasir_store_bytes", "Bytes of stored prefixes.", status.engine.store.bytes);
}

}  // namespace

void Metrics::Add(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  ++requests_[record.status];
  prompt_tokens_ += record.prompt_tokens;
  cached_tokens_ += record.cached_tokens;
  generated_tokens_ += record.generated_tokens;
  token_gaps_.Merge(record.token_gaps);
  if (record.first_token_ms) first_tokens_.Add(*record.first_token_ms / 1000);
}

void Metrics::AddResponse(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{std::string(route), status}];
}

std::string Metrics::Render(const ServiceStatus& status, const EnginePicture& picture) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  Describe("kvasir_requests_total", "counter",
           "Requests for answers that have ended, by status; 0: the client had gone.", &text);
  for (const auto& [code, count] : requests_) {
    text += "kvasir_requests_total{status=\"" + std::to_string(code) + "\"} " +
            std::to_string(count) + "\n";
  }
  Describe("kvasir_http_responses_total", "counter",
           "Responses begun, refusals included, by route and status.", &text);
  for (const auto& [key, count] : responses_) {
    text += "kvasir_http_responses_total{route=\"" + key.first + "\",status=\"" +
            std::to_string(key.second) + "\"} " + std::to_string(count) + "\n";
  }
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    Append(name, "counter", help, static_cast<uint64_t>(value), &text);
  };
  counter("kvasir_prompt_tokens_total", "Tokens of prompts, cached ones included.", prompt_tokens_);
  counter("kvasir_cached_tokens_total", "Tokens of prompts that were found in the cache.",
          cached_tokens_);
  counter("kvasir_generated_tokens_total", "Tokens generated.", generated_tokens_);

  counter("kvasir_steps_total", "Forward passes.", status.engine.steps);
  counter("kvasir_evaluated_tokens_total", "Tokens in forward passes, recomputed ones included.",
          status.engine.evaluated_tokens);
  counter("kvasir_preemptions_total", "Answers that lost their cache for a while.",
          status.engine.preemptions);
  counter("kvasir_evictions_total", "Times that cached prefixes were given up for memory.",
          status.engine.evictions.count);
  counter("kvasir_evicted_bytes_total", "Bytes of them.", status.engine.evictions.bytes);
  counter("kvasir_swapped_out_total", "Caches that began to go to disk.",
          status.engine.swapped_out);
  counter("kvasir_swapped_in_total", "Caches that came back from disk.", status.engine.swapped_in);
  counter("kvasir_swaps_lost_total", "Caches that were given up on their way.",
          status.engine.swaps_lost);
  counter("kvasir_store_written_total", "Files of prefixes that were stored.",
          status.engine.store.written);
  counter("kvasir_store_removed_total", "Files of prefixes that were removed for room.",
          status.engine.store.removed);
  counter("kvasir_store_failures_total", "Files of prefixes that could not be written or read.",
          status.engine.store.failed);
  counter("kvasir_store_fetched_tokens_total", "Tokens that were read from stored prefixes.",
          status.engine.fetched_tokens);
  counter("kvasir_drafted_tokens_total", "Tokens that were verified as drafts.",
          status.engine.drafted_tokens);
  counter("kvasir_accepted_drafts_total", "Drafts that were right.", status.engine.accepted_drafts);
  AppendHistogram("kvasir_time_to_first_token_seconds",
                  "From the arrival of a request to its first token.", first_tokens_, &text);
  AppendHistogram("kvasir_inter_token_seconds", "Between two tokens of an answer.", token_gaps_,
                  &text);
  AppendGauges(status, picture, &text);
  return text;
}

}  // namespace kvasir
