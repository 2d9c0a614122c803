#include "kvasir/server/chat_service.h"

#include <ctime>
#include <random>
#include <utility>

#include "kvasir/server/api_error.h"
#include "kvasir/server/chat_answer.h"

namespace kvasir {
namespace {

// Random where reproducibility is not asked for: seeds of requests without one, and ids.
uint64_t RandomNumber() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::string NewAnswerId() {
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuv";
  std::string id = "chatcmpl-";
  for (int part = 0; part < 2; ++part) {
    uint64_t bits = RandomNumber();
    for (int i = 0; i < 12; ++i, bits >>= 5) id += kDigits[bits & 31];
  }
  return id;
}

ApiError ShuttingDown() { return {503, "the server is shutting down", "", ""}; }

ApiError TooManyWaiting() {
  return {503, "too many requests are waiting; try again later", "", ""};
}

// What the template cannot render is wrong with the request, unless the model lacks something.
ApiError PromptError(const Error& error) {
  ApiError answer = ToApiError(error);
  answer.status = error.code == ErrorCode::kFailedPrecondition ? 500 : 400;
  if (answer.status == 400) answer.param = "messages";
  return answer;
}

ApiError TooLong(size_t prompt_tokens, int64_t context_tokens) {
  return {400,
          "This model's maximum context length is " + std::to_string(context_tokens) +
              " tokens. However, your messages resulted in " + std::to_string(prompt_tokens) +
              " tokens. Please reduce the length of the messages.",
          "messages", "context_length_exceeded"};
}

}  // namespace

Result<std::unique_ptr<ChatService>> ChatService::Start(ModelBundle* bundle,
                                                        ChatServiceOptions options) {
  if (bundle->tokenizer() == nullptr || bundle->chat() == nullptr) {
    return {ErrorCode::kFailedPrecondition,
            bundle->folder() + " has no " +
                (bundle->tokenizer() == nullptr ? "tokenizer.json" : "chat template") +
                ", without which a chat cannot be served; use a model that was trained to chat"};
  }
  if (options.max_waiting < 0 || options.chunk_tokens < 1) {
    return {ErrorCode::kInvalidArgument,
            "server options: max_waiting must be 0 or more, chunk_tokens 1 or more"};
  }
  KVASIR_TRY(CachedSequence sequence, bundle->NewSequence());
  return std::unique_ptr<ChatService>(
      new ChatService(bundle, std::move(sequence), std::move(options)));
}

ChatService::ChatService(ModelBundle* bundle, CachedSequence sequence, ChatServiceOptions options)
    : bundle_(bundle),
      options_(std::move(options)),
      sequence_(std::move(sequence)),
      generator_(bundle),
      thread_([this] { Run(); }) {}

ChatService::~ChatService() {
  Stop(std::chrono::milliseconds(0), std::chrono::milliseconds(0));
  thread_.join();
}

void ChatService::Submit(ChatRequest request, HttpReply reply) {
  bool is_stopping = false;
  {
    const std::lock_guard lock(mutex_);
    is_stopping = is_stopping_;
    // Whoever has gone must not keep others out.
    std::erase_if(waiting_, [](const Job& job) { return job.reply.is_client_gone(); });
    if (!is_stopping_ && waiting_.size() < static_cast<size_t>(options_.max_waiting) + !is_busy_) {
      waiting_.push_back({std::move(request), std::move(reply)});
      work_.notify_one();
      return;
    }
  }
  reply.Send(ErrorResponse(is_stopping ? ShuttingDown() : TooManyWaiting()));
}

void ChatService::Stop(std::chrono::milliseconds grace, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  work_.notify_one();
  const auto is_idle = [this] { return !is_busy_ && waiting_.empty(); };
  if (idle_.wait_for(lock, grace, is_idle)) return;
  cancels_ = true;
  (void)idle_.wait_for(lock, patience, is_idle);
}

void ChatService::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    is_busy_ = true;
    const bool is_refused = is_stopping_;
    lock.unlock();
    if (is_refused) {
      job.reply.Send(ErrorResponse(ShuttingDown()));
    } else {
      Answer(job);
    }
    lock.lock();
    is_busy_ = false;
    idle_.notify_all();
  }
}

void ChatService::Answer(Job& job) {
  if (job.reply.is_client_gone()) return;
  const ChatRequest& request = job.request;
  AnswerOptions options;
  options.head.id = NewAnswerId();
  options.head.created = std::time(nullptr);
  options.head.model = request.model.empty() ? options_.model_name : request.model;
  options.is_stream = request.is_stream;
  options.includes_usage = request.includes_usage;
  options.ping_interval = options_.ping_interval;
  ChatAnswer answer(std::move(options), &job.reply, &cancels_);

  auto prompt = bundle_->ChatTokens(request.messages, request.template_variables);
  if (!prompt.ok()) return answer.Fail(PromptError(prompt.error()));
  const int64_t context = bundle_->model().context_tokens();
  if (prompt->size() >= static_cast<size_t>(context)) {
    return answer.Fail(TooLong(prompt->size(), context));
  }
  GenerationRequest generation;
  generation.prompt = *std::move(prompt);
  generation.max_tokens = request.max_tokens.value_or(context);
  generation.sampling = request.sampling;
  generation.sampling.seed = request.seed.value_or(RandomNumber());
  generation.stop_strings = request.stop_strings;
  generation.ignore_stop_tokens = request.ignore_stop_tokens;
  generation.chunk_tokens = options_.chunk_tokens;
  const auto result = generator_.Generate(generation, sequence_, answer.Callbacks());
  LogEnd(job.reply, result);
  answer.Finish(result);
}

void ChatService::LogEnd(const HttpReply& reply, const Result<GenerationResult>& result) const {
  if (!options_.log) return;
  if (!result.ok()) {
    return options_.log(LogLevel::kWarning, "chat: failed: " + result.error().message);
  }
  const GenerationStats& stats = result->stats;
  const bool is_gone = result->finish == FinishReason::kCancelled && reply.is_client_gone();
  std::string line = "chat: " + std::to_string(stats.prompt_tokens) + " prompt tokens, " +
                     std::to_string(stats.cached_tokens) + " of them cached; " +
                     std::to_string(stats.generated_tokens) + " generated; " +
                     std::string(is_gone ? "the client is gone" : FinishReasonName(result->finish));
  options_.log(LogLevel::kInfo, line);
}

}  // namespace kvasir
