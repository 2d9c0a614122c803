// POST /v1/completions.
// Deliberately without a chat template: the prompt is the model's input as it stands.
#include <utility>

#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"
#include "kvasir/server/text_format.h"
#include "kvasir/server/text_request.h"

namespace kvasir {
namespace {

std::string EchoOf(const ServerContext& context, const TextPrompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  return context.bundle->tokenizer()->Decode(std::get<std::vector<Token>>(prompt),
                                             {.skip_special = false});
}

}  // namespace

void ServeText(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const auto body = ParseBody(request);
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  const auto text = ParseTextRequest(*body, context.defaults);
  if (!text.ok()) return reply.Send(ErrorResponse(ToApiError(text.error())));
  auto constraint = MakeConstraint(context, text->rule);
  if (!constraint.ok()) return reply.Send(ErrorResponse(ToApiError(constraint.error())));
  TextFormatOptions options;
  options.head = NewHead(context, "cmpl-", text->model);
  for (const TextPrompt& prompt : text->prompts) {
    options.prompts.push_back(TokensOf(context, prompt));
    const bool is_answered = text->max_tokens != 0;
    if (const auto error = CheckPrompt(context, options.prompts.back(), "prompt", is_answered)) {
      return reply.Send(ErrorResponse(*error));
    }
    if (text->echoes_prompt) options.echoes.push_back(EchoOf(context, prompt));
  }
  options.choices_per_prompt = text->choices;
  options.includes_usage = text->includes_usage;
  options.has_logprobs = text->top_logprobs.has_value();
  options.tokenizer = context.bundle->tokenizer();
  AnswerJob job;
  job.id = options.head.id;
  job.constraint = *std::move(constraint);
  job.fields = *text;
  job.prompts = options.prompts;
  job.scores_prompt = text->echoes_prompt && options.has_logprobs;
  job.format = std::make_unique<TextFormat>(std::move(options));
  SubmitAnswer(context, request, std::move(job), std::move(reply));
}

}  // namespace kvasir
