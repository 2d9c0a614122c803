// Answer: carries one request's choices to its client, whole or as a stream, and reports the end.
// Deliberately not the generator's owner, and without any API's format: it decides when to send.
#ifndef KVASIR_SERVER_ANSWER_H_
#define KVASIR_SERVER_ANSWER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/chat/answer_parser.h"
#include "kvasir/server/answer_format.h"
#include "kvasir/server/completion_service.h"
#include "kvasir/server/http_reply.h"
#include "kvasir/server/request_record.h"

namespace kvasir {

struct AnswerOptions {
  std::string path;  // for the record
  // When the request was there, from which its time counts.
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  size_t choices = 1;
  int64_t choices_per_prompt = 1;
  bool is_stream = false;
  AnswerParserOptions parser;  // what the text of each choice is read as
  std::string call_id_prefix = "call_";
  bool has_short_call_ids = false;  // 9 characters without prefix, which Mistral's templates want
  bool scores_text = false;  // scores are those of the text alone, without thoughts and calls
  // A stream that has shown nothing for this long says that it is alive, so that neither client
  // nor proxy gives up on a long prompt. From then on errors are events, not statuses.
  std::chrono::milliseconds ping_interval{5'000};
  std::chrono::milliseconds time_limit{0};  // then every choice ends, as "length"; 0: none
  // True: as if the time were over. Null: nobody can say so.
  std::shared_ptr<const std::atomic<bool>> cancelled;
  // Runs a task on a thread that may take its time. Empty: there is none.
  std::function<void(std::function<void()> task)> post;
  // Gets the answer's tokens when it has ended. Empty: nobody wants them.
  std::function<void(std::span<const AnsweredChoice> results)> on_results;
};

class Answer final : public CompletionSink {
 public:
  Answer(AnswerOptions options, std::unique_ptr<AnswerFormat> format, HttpReply reply,
         RequestObserver observer);

  bool is_cancelled() const override;
  bool is_paused() const override { return reply_.is_client_behind(); }
  void OnPrompt(size_t choice, const PromptProgress& progress) override;
  void OnToken(size_t choice, const TokenScores* scores) override;
  void OnText(size_t choice, std::string_view text) override;
  void OnChoiceEnd(size_t choice, GenerationResult result) override;
  void OnChoiceFailure(size_t choice, const GenerationStats& stats) override;
  void OnEnd(const Status& status) override;

 private:
  using Clock = std::chrono::steady_clock;

  bool is_cut_off() const;
  void Take(size_t choice, const AnswerParts& parts);
  void KeepScores(size_t choice, const TokenScores& scores);
  std::string NewCallId() const;
  void Begin();
  void Send(std::string_view event);
  // Whether a stream has to show that it goes on. Once where the connection asked for it.
  bool TakePing();
  void SendWhole();
  void Fail(const ApiError& error);
  void Report(const Status& status, int http_status) const;

  AnswerOptions options_;
  std::unique_ptr<AnswerFormat> format_;  // gone with a whole answer, as are reply and results
  HttpReply reply_;
  const RequestObserver observer_;
  const Clock::time_point begin_;
  Clock::time_point last_sent_ = begin_;
  Clock::time_point first_token_ = begin_;
  bool has_token_ = false;
  std::vector<Clock::time_point> last_tokens_;  // per choice; begin_: none yet
  LatencyHistogram token_gaps_;
  PromptProgress prompt_;
  std::vector<std::vector<TokenScores>> unsent_scores_;  // per choice
  std::vector<std::vector<TokenScores>> text_scores_;    // per choice; of scores_text
  std::vector<AnswerParser> parsers_;                    // per choice
  std::vector<AnsweredChoice> results_;                  // per choice
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_ANSWER_H_
