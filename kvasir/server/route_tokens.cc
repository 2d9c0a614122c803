// POST /tokenize, /detokenize and /apply-template, as llama-server has them.
// Deliberately without the engine: nothing here waits for a turn.
#include <utility>

#include "kvasir/server/answer_json.h"
#include "kvasir/server/chat_job.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"
#include "kvasir/tokenizer/token_name.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

// A piece as text, or as a list of bytes where it is half a character.
Json PieceJson(const std::string& piece) {
  if (IsValidUtf8(piece)) return piece;
  Json::Array bytes;
  for (const char byte : piece) bytes.push_back(static_cast<int>(static_cast<uint8_t>(byte)));
  return bytes;
}

// Written at once: as values, the pieces of a large text would take hundreds of times its bytes.
Result<std::string> Tokenize(const ServerContext& context, const HttpRequest& request) {
  KVASIR_TRY(const Json body, ParseBody(request));
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY(const std::string content, body.GetString("content"));
  EncodeOptions options;
  KVASIR_TRY(options.add_special, body.GetBoolOr("add_special", false));
  KVASIR_TRY(options.parse_special, body.GetBoolOr("parse_special", true));
  KVASIR_TRY(const bool with_pieces, body.GetBoolOr("with_pieces", false));
  const Tokenizer& tokenizer = *context.bundle->tokenizer();
  std::string answer = "{\"tokens\":[";
  for (const Token token : tokenizer.Encode(content, options)) {
    if (answer.back() != '[') answer += ',';
    if (with_pieces) {
      const Json piece = PieceJson(TokenPiece(tokenizer, token));
      answer += Json(Json::Object{{"id", token}, {"piece", piece}}).Dump();
    } else {
      answer += std::to_string(token);
    }
  }
  return answer.append("]}");
}

Result<std::string> Detokenize(const ServerContext& context, const HttpRequest& request) {
  KVASIR_TRY(const Json body, ParseBody(request));
  KVASIR_TRY_OK(RequireObject(body));
  const Json* ids = FindSet(body, "tokens");
  if (ids == nullptr || !ids->is_array()) {
    return FieldError(ErrorCode::kCorrupt, "tokens", "must be an array of token ids");
  }
  const Tokenizer& tokenizer = *context.bundle->tokenizer();
  std::vector<Token> tokens;
  for (const Json& id : ids->as_array()) {
    if (!id.is_int()) return WrongType("tokens", "an array of token ids", id);
    if (id.as_int() < 0 || id.as_int() >= tokenizer.vocab_size()) {
      return FieldError(ErrorCode::kInvalidArgument, "tokens",
                        "has an id outside the vocabulary, which ends at " +
                            std::to_string(tokenizer.vocab_size() - 1));
    }
    tokens.push_back(static_cast<Token>(id.as_int()));
  }
  const std::string content = tokenizer.Decode(tokens, {.skip_special = false});
  return Json(Json::Object{{"content", content}}).Dump();
}

void SendResult(Result<std::string> body, HttpReply reply) {
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  reply.Send({.body = *std::move(body)});
}

}  // namespace

void ServeTokenize(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  SendResult(Tokenize(context, request), std::move(reply));
}

void ServeDetokenize(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  SendResult(Detokenize(context, request), std::move(reply));
}

void ServeApplyTemplate(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  auto body = ParseBody(request);
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  const auto chat = ParseChatRequest(*std::move(body), context.defaults);
  if (!chat.ok()) return reply.Send(ErrorResponse(ToApiError(chat.error())));
  const auto text = ChatPrompt(context, *chat);
  if (!text.ok()) return reply.Send(ErrorResponse(TemplateError(context, text.error())));
  reply.Send({.body = Json(Json::Object{{"prompt", Concatenate(*text)}}).Dump()});
}

}  // namespace kvasir
