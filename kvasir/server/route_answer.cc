#include "kvasir/server/route_answer.h"

#include <cctype>
#include <ctime>
#include <random>
#include <string>
#include <utility>

#include "kvasir/engine/grammar_constraint.h"
#include "kvasir/server/access.h"
#include "kvasir/server/answer.h"

namespace kvasir {
namespace {

// For requests without a seed.
uint64_t RandomSeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::string TokensText(const std::vector<Token>& tokens) {
  std::string text = "[";
  for (const Token token : tokens) {
    if (text.size() > 1) text += ' ';
    text += std::to_string(token);
  }
  text += ']';
  return text;
}

// What the log says beside the line that every request gets at its end.
void LogRequest(const ServerContext& context, const AnswerJob& job, uint64_t seed,
                AnswerOptions* options) {
  if (context.log_detail == RequestLogDetail::kNone) return;
  const GenerationFields& fields = job.fields;
  const Json parameters =
      Json::Object{{"prompts", static_cast<uint64_t>(job.prompts.size())},
                   {"n", fields.choices},
                   {"max_tokens", fields.max_tokens ? Json(*fields.max_tokens) : Json()},
                   {"temperature", fields.sampling.temperature},
                   {"top_k", fields.sampling.top_k},
                   {"top_p", fields.sampling.top_p},
                   {"min_p", fields.sampling.min_p},
                   {"seed", std::to_string(seed)},
                   {"stop_strings", static_cast<uint64_t>(fields.stop_strings.size())},
                   {"stream", fields.is_stream},
                   {"constrained", job.constraint != nullptr},
                   {"timeout_ms", static_cast<int64_t>(options->time_limit.count())}};
  Log(context.log, LogLevel::kDebug, job.id + " " + options->path + ": " + parameters.Dump());
  if (context.log_detail != RequestLogDetail::kTokens) return;
  for (const std::vector<Token>& prompt : job.prompts) {
    Log(context.log, LogLevel::kDebug, job.id + " prompt tokens " + TokensText(prompt));
  }
  options->on_results = [&context, id = job.id](std::span<const AnsweredChoice> results) {
    for (const AnsweredChoice& result : results) {
      Log(context.log, LogLevel::kDebug, id + " answer tokens " + TokensText(result.tokens));
    }
  };
}

}  // namespace

Result<Json> ParseBody(const HttpRequest& request) {
  std::string encoding(request.Header("Content-Encoding"));
  for (char& c : encoding) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!encoding.empty() && encoding != "identity") {
    return Error{ErrorCode::kUnsupported, "the body has a Content-Encoding; send it without one"};
  }
  auto json = Json::Parse(request.body);
  if (!json.ok()) return WithContext(json.error(), "the body is no valid JSON");
  return json;
}

AnswerHead NewHead(const ServerContext& context, std::string_view id_prefix,
                   const std::string& model) {
  return {NewId(id_prefix), static_cast<int64_t>(std::time(nullptr)),
          model.empty() ? context.model_name : model};
}

std::vector<Token> TokensOf(const ServerContext& context, const TextPrompt& prompt) {
  if (const auto* tokens = std::get_if<std::vector<Token>>(&prompt)) return *tokens;
  return context.bundle->tokenizer()->Encode(std::get<std::string>(prompt));
}

std::optional<ApiError> CheckPrompt(const ServerContext& context, const std::vector<Token>& prompt,
                                    std::string_view field, bool is_answered) {
  if (prompt.empty()) {
    return ApiError{400, "field '" + std::string(field) + "' gives no token", std::string(field),
                    ""};
  }
  const int64_t context_tokens = context.bundle->model().context_tokens();
  const auto tokens = static_cast<int64_t>(prompt.size());
  if (tokens + (is_answered ? 1 : 0) <= context_tokens) return std::nullopt;
  const std::string name(field);
  return ApiError{400,
                  "This model's maximum context length is " + std::to_string(context_tokens) +
                      " tokens. However, your " + name + " resulted in " +
                      std::to_string(prompt.size()) + " tokens. Please reduce the length of the " +
                      name + ".",
                  name, "context_length_exceeded"};
}

ApiError TemplateError(const ServerContext& context, const Error& error) {
  ApiError answer = ToApiError(error);
  // Where the model lies is nobody's business.
  const std::string folder = context.bundle->folder() + "/";
  if (answer.message.starts_with(folder)) answer.message.erase(0, folder.size());
  // Unless the model lacks something, what the template cannot render is wrong with the request.
  answer.status = error.code == ErrorCode::kFailedPrecondition ? 500 : 400;
  const bool is_of_messages = answer.status == 400 && error.code != ErrorCode::kUnsupported;
  if (is_of_messages) answer.param = "messages";
  return answer;
}

Result<std::shared_ptr<const TokenConstraintSource>> MakeConstraint(const ServerContext& context,
                                                                    const OutputRule& rule) {
  if (rule.is_free()) return std::shared_ptr<const TokenConstraintSource>();
  const auto build = [&]() -> Result<std::shared_ptr<const Grammar>> {
    KVASIR_TRY(OutputLanguage language, LanguageOf(rule));
    const GrammarSyntax::Rule root = language.syntax.RuleNamed("answer text");
    language.syntax.Define(root, language.text);
    auto grammar = Grammar::FromSyntax(language.syntax, root);
    if (!grammar.ok()) return GrammarError(grammar.error(), rule.field);
    return grammar;
  };
  KVASIR_TRY(auto masks, context.grammars->Get(rule.Key(), build));
  return std::shared_ptr<const TokenConstraintSource>(
      std::make_shared<GrammarConstraintSource>(std::move(masks)));
}

void SubmitAnswer(const ServerContext& context, const HttpRequest& request, AnswerJob job,
                  HttpReply reply) {
  const GenerationFields& fields = job.fields;
  GenerationRequest generation;
  generation.max_tokens = fields.max_tokens.value_or(context.bundle->model().context_tokens());
  generation.sampling = fields.sampling;
  generation.stop_strings = fields.stop_strings;
  generation.ignore_stop_tokens = fields.ignore_stop_tokens;
  generation.max_drafts = fields.max_drafts;
  generation.top_logprobs = fields.top_logprobs;
  generation.scores_prompt = job.scores_prompt;
  generation.constraint = job.constraint;
  generation.shown_special = job.shown_special;
  const uint64_t seed = fields.seed.value_or(RandomSeed());
  generation.sampling.seed = seed;

  CompletionRequest completion;
  completion.pooling = job.pooling;
  completion.priority = static_cast<int>(-fields.priority);
  completion.salt = CacheSalt(request, context.separates_keys, fields.cache_salt);
  completion.tenant = CacheSalt(request, context.separates_keys, "");
  completion.slot = fields.slot;
  completion.generation = std::move(generation);
  completion.answers = static_cast<int>(fields.choices);
  AnswerOptions options;
  options.path = request.path;
  options.arrived = request.arrived;
  options.choices = job.prompts.size() * static_cast<size_t>(fields.choices);
  options.choices_per_prompt = fields.choices;
  options.is_stream = fields.is_stream;
  options.ping_interval = context.ping_interval;
  options.time_limit = context.time_limit;
  if (fields.timeout_ms &&
      (options.time_limit.count() == 0 || *fields.timeout_ms < options.time_limit.count())) {
    options.time_limit = std::chrono::milliseconds(*fields.timeout_ms);
  }
  options.cancelled = context.running->Add(job.id, CacheSalt(request, context.separates_keys, ""));
  LogRequest(context, job, seed, &options);
  completion.prompts = std::move(job.prompts);
  options.parser = std::move(job.parser);
  options.call_id_prefix = job.call_id_prefix;
  options.has_short_call_ids = job.has_short_call_ids;
  options.post = context.post;
  options.scores_text = job.scores_text;
  completion.sink = std::make_unique<Answer>(std::move(options), std::move(job.format),
                                             std::move(reply), context.observer);
  context.service->Submit(std::move(completion));
}

}  // namespace kvasir
