// POST /v1/embeddings, and llama-server's /embedding.
// Deliberately without a chat template, as /v1/completions: a text is embedded as it stands.
#include <utility>

#include "kvasir/server/embedding_request.h"
#include "kvasir/server/embeddings_format.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

void ServeEmbeddingsAs(bool is_llama_server, const ServerContext& context,
                       const HttpRequest& request, HttpReply reply) {
  const auto body = ParseBody(request);
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  const auto wanted =
      ParseEmbeddingRequest(*body, context.defaults, context.bundle->model().hidden_size());
  if (!wanted.ok()) return reply.Send(ErrorResponse(ToApiError(wanted.error())));
  AnswerJob job;
  for (const TextPrompt& input : wanted->inputs) {
    job.prompts.push_back(TokensOf(context, input));
    if (const auto error = CheckPrompt(context, job.prompts.back(), wanted->field, false)) {
      return reply.Send(ErrorResponse(*error));
    }
  }
  job.fields = wanted->fields;
  job.pooling = context.pooling;
  AnswerHead head = NewHead(context, "embd-", wanted->model);
  job.id = head.id;
  job.format = std::make_unique<EmbeddingsFormat>(
      EmbeddingsFormatOptions{.head = std::move(head),
                              .is_base64 = wanted->is_base64,
                              .dimensions = wanted->dimensions,
                              .is_llama_server = is_llama_server});
  SubmitAnswer(context, request, std::move(job), std::move(reply));
}

}  // namespace

void ServeEmbeddings(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  ServeEmbeddingsAs(false, context, request, std::move(reply));
}

void ServeEmbedding(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  ServeEmbeddingsAs(true, context, request, std::move(reply));
}

}  // namespace kvasir
