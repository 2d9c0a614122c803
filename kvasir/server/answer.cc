#include "kvasir/server/answer.h"

#include <algorithm>
#include <utility>

#include "kvasir/server/answer_json.h"

namespace kvasir {
namespace {

double Milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// What the cache knew of the prompt, for people who ask why it was evaluated again.
HttpHeader CacheHeader(const PromptProgress& prompt) {
  return {"Kvasir-Cache", "prompt=" + std::to_string(prompt.prompt_tokens) +
                              ", cached=" + std::to_string(prompt.cached_tokens) +
                              ", known=" + std::to_string(prompt.known_prefix_tokens)};
}

}  // namespace

Answer::Answer(AnswerOptions options, std::unique_ptr<AnswerFormat> format, HttpReply reply,
               RequestObserver observer)
    : options_(std::move(options)),
      format_(std::move(format)),
      reply_(std::move(reply)),
      observer_(std::move(observer)),
      begin_(options_.arrived),
      last_tokens_(options_.choices, begin_),
      unsent_scores_(options_.choices),
      text_scores_(options_.choices),
      parsers_(options_.choices, AnswerParser(std::move(options_.parser))),
      results_(options_.choices) {}

bool Answer::is_cut_off() const {
  if (options_.cancelled != nullptr && *options_.cancelled) return true;
  return options_.time_limit.count() > 0 && Clock::now() - begin_ >= options_.time_limit;
}

bool Answer::is_cancelled() const { return reply_.is_client_gone() || is_cut_off(); }

void Answer::OnPrompt(size_t choice, const PromptProgress& progress) {
  if (choice == 0) prompt_ = progress;
  if (!options_.is_stream || !TakePing()) return;
  Begin();
  Send(SseComment("prompt " + std::to_string(progress.done_tokens) + "/" +
                  std::to_string(progress.prompt_tokens - progress.cached_tokens)));
}

void Answer::OnToken(size_t choice, const TokenScores* scores) {
  const Clock::time_point now = Clock::now();
  if (!std::exchange(has_token_, true)) first_token_ = now;
  const Clock::time_point last = std::exchange(last_tokens_[choice], now);
  if (last != begin_) token_gaps_.Add(Milliseconds(now - last) / 1000);
  if (parsers_[choice].is_in_thought()) ++results_[choice].message.reasoning_tokens;
  if (options_.is_stream) {
    Begin();
    // Of calls that are shown when they are complete there may be nothing to see for long.
    if (TakePing()) Send(SseComment("token"));
  }
  if (scores != nullptr) KeepScores(choice, *scores);
}

bool Answer::TakePing() {
  if (reply_.TakeAsked()) return true;
  return Clock::now() - last_sent_ >= options_.ping_interval;
}

void Answer::KeepScores(size_t choice, const TokenScores& scores) {
  if (options_.scores_text && !parsers_[choice].is_in_text()) return;
  if (options_.is_stream) unsent_scores_[choice].push_back(scores);
  if (options_.scores_text) text_scores_[choice].push_back(scores);
}

void Answer::OnText(size_t choice, std::string_view text) {
  const AnswerParts parts = parsers_[choice].Push(text);
  if (options_.scores_text && parsers_[choice].is_in_thought()) {
    // What came since the last text was none but the opening of the thought.
    size_t known = 0;
    for (const AnswerItem& item : results_[choice].message.items) {
      if (item.is(AnswerPart::Kind::kText)) known = item.scores_end;
    }
    unsent_scores_[choice].clear();
    text_scores_[choice].resize(std::min(known, text_scores_[choice].size()));
  }
  Take(choice, parts);
}

void Answer::Take(size_t choice, const AnswerParts& parts) {
  AnswerMessage& message = results_[choice].message;
  for (const AnswerPart& part : parts) {
    const bool is_call = part.kind == AnswerPart::Kind::kCall;
    message.Add(part, is_call ? NewCallId() : "", text_scores_[choice].size());
    if (!options_.is_stream) continue;
    Begin();
    Send(format_->Part(choice, part, message, std::exchange(unsent_scores_[choice], {})));
  }
}

std::string Answer::NewCallId() const {
  constexpr size_t kShort = 9;
  return options_.has_short_call_ids ? NewId("").substr(0, kShort) : NewId(options_.call_id_prefix);
}

void Answer::OnChoiceEnd(size_t choice, GenerationResult result) {
  if (result.finish == FinishReason::kCancelled && !reply_.is_client_gone()) {
    result.finish = FinishReason::kLength;
  }
  Take(choice, parsers_[choice].Finish());
  if (options_.scores_text) result.scores = std::exchange(text_scores_[choice], {});
  static_cast<GenerationResult&>(results_[choice]) = std::move(result);
  if (!options_.is_stream || reply_.is_client_gone()) return;
  // Cut off in the queue: OnEnd says so, with a status of its own.
  if (!has_token_ && !reply_.is_started() && is_cut_off()) return;
  Begin();
  Send(format_->ChoiceEnd(choice, results_[choice], std::exchange(unsent_scores_[choice], {})));
}

void Answer::OnChoiceFailure(size_t choice, const GenerationStats& stats) {
  results_[choice].stats = stats;
}

void Answer::OnEnd(const Status& end) {
  if (reply_.is_client_gone()) return Report(end, 0);
  if (options_.on_results) options_.on_results(results_);
  // What was cut off in the queue is no answer of length 0.
  const bool is_answered = !end.ok() || has_token_ || !is_cut_off() || reply_.is_started() ||
                           results_.front().stats.generated_tokens > 0;
  const Status cut_off(ErrorCode::kCancelled,
                       "the request ended before its first token: its time was over, or somebody "
                       "cancelled it");
  const Status& status = is_answered ? end : cut_off;
  // Whoever reads the end of an answer finds it no longer running.
  options_.cancelled.reset();
  if (!status.ok()) {
    const ApiError error = ToApiError(status.error());
    Report(status, error.status);
    return Fail(error);
  }
  Report(status, 200);
  if (!options_.is_stream) return SendWhole();
  Send(format_->End(results_));
  reply_.Finish();
}

// Numbers by the thousand take long to print: the engine's thread has others to serve.
void Answer::SendWhole() {
  struct Whole {
    std::unique_ptr<AnswerFormat> format;
    std::vector<AnsweredChoice> results;
    HttpReply reply;
  };
  reply_.AddHeader(CacheHeader(prompt_));
  const bool is_long = std::any_of(results_.begin(), results_.end(), [](const auto& result) {
    return !result.embedding.empty() || !result.scores.empty() || !result.prompt_scores.empty();
  });
  const auto whole =
      std::make_shared<Whole>(Whole{std::move(format_), std::move(results_), std::move(reply_)});
  const auto send = [whole] {
    whole->reply.Send({.body = whole->format->Whole(whole->results).Dump()});
  };
  if (is_long && options_.post) return options_.post(send);
  send();
}

void Answer::Fail(const ApiError& error) {
  if (!reply_.is_started()) return reply_.Send(ErrorResponse(error, format_->error_style()));
  Send(format_->Error(error));
  reply_.Finish();
}

// Not before the first token: until then an error can still be an HTTP status.
void Answer::Begin() {
  if (reply_.is_started()) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}, CacheHeader(prompt_)};
  (void)reply_.StartStream(head);
  Send(format_->Begin(prompt_));
}

void Answer::Send(std::string_view event) {
  // A failed write shows in is_client_gone, which ends the generation.
  (void)reply_.WriteNow(event);
  last_sent_ = Clock::now();
}

void Answer::Report(const Status& status, int http_status) const {
  if (!observer_) return;
  const GenerationStats total = TotalStats(results_, options_.choices_per_prompt);
  RequestRecord record;
  record.path = options_.path;
  record.status = http_status;
  record.prompt_tokens = total.prompt_tokens;
  record.cached_tokens = total.cached_tokens;
  record.known_tokens = total.known_prefix_tokens;
  record.generated_tokens = total.generated_tokens;
  record.token_gaps = token_gaps_;
  record.decode_tokens_per_second = total.decode_tokens_per_second();
  record.total_ms = Milliseconds(Clock::now() - begin_);
  if (has_token_) record.first_token_ms = Milliseconds(first_token_ - begin_);
  if (http_status == 0) {
    record.finish = "the client is gone";
  } else if (!status.ok()) {
    record.error = status.error().message;
  } else {
    record.finish = FinishReasonName(results_.front().finish);
  }
  observer_(record);
}

}  // namespace kvasir
