// What the routes that generate share: from a body to prompts, from prompts to the service.
// Deliberately without any API's field names: those are in the *_request files.
#ifndef KVASIR_SERVER_ROUTE_ANSWER_H_
#define KVASIR_SERVER_ROUTE_ANSWER_H_

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/chat/answer_parser.h"
#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/http_reply.h"
#include "kvasir/server/server_context.h"
#include "kvasir/server/text_request.h"

namespace kvasir {

// ERRORS: kCorrupt: what is wrong with the JSON and where.
Result<Json> ParseBody(const HttpRequest& request);

// Id, time and model name of a new answer. `model`: what the request said, possibly nothing.
AnswerHead NewHead(const ServerContext& context, std::string_view id_prefix,
                   const std::string& model);

// A text's tokens with the model's special ones, or the tokens as they came.
std::vector<Token> TokensOf(const ServerContext& context, const TextPrompt& prompt);

// Null when the prompt fits the context and, if it is to be answered, leaves room for that.
// `field`: where it came from.
std::optional<ApiError> CheckPrompt(const ServerContext& context, const std::vector<Token>& prompt,
                                    std::string_view field, bool is_answered);
// What the template could not do with the messages.
ApiError TemplateError(const ServerContext& context, const Error& error);

// What the answer is held to; null: nothing. ERRORS: kInvalidArgument, kUnsupported; the message
// begins with the field.
Result<std::shared_ptr<const TokenConstraintSource>> MakeConstraint(const ServerContext& context,
                                                                    const OutputRule& rule);

struct AnswerJob {
  std::string id;  // by which it can be cancelled
  GenerationFields fields;
  std::vector<std::vector<Token>> prompts;
  bool scores_prompt = false;
  std::shared_ptr<const TokenConstraintSource> constraint;  // null: none
  std::optional<Pooling> pooling;  // set: embeddings are wanted, one per prompt
  AnswerParserOptions parser;
  std::string call_id_prefix = "call_";
  bool has_short_call_ids = false;
  bool scores_text = false;          // AnswerOptions
  std::vector<Token> shown_special;  // GenerationRequest
  std::unique_ptr<AnswerFormat> format;
};
// fields.choices per prompt, with the seeds seed, seed + 1, ...
void SubmitAnswer(const ServerContext& context, const HttpRequest& request, AnswerJob job,
                  HttpReply reply);

}  // namespace kvasir

#endif  // KVASIR_SERVER_ROUTE_ANSWER_H_
