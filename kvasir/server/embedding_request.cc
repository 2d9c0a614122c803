#include "kvasir/server/embedding_request.h"

#include <array>

namespace kvasir {
namespace {

constexpr int64_t kEuclidean = 2;

constexpr std::array kUnsupported = {
    UnsupportedField{"embd_normalize",
                     [](const Json& v) { return v.is_int() && v.as_int() == kEuclidean; },
                     "must be 2: embeddings have the Euclidean length 1"},
};

Result<bool> ParseIsBase64(const Json& body) {
  KVASIR_TRY(const std::string format, body.GetStringOr("encoding_format", "float"));
  if (format == "base64" || format == "float") return format == "base64";
  return FieldError(ErrorCode::kInvalidArgument, "encoding_format",
                    "must be \"float\" or \"base64\"");
}

Result<std::optional<int64_t>> ParseDimensions(const Json& body, int64_t hidden_size) {
  if (FindSet(body, "dimensions") == nullptr) return std::optional<int64_t>();
  KVASIR_TRY(const int64_t dimensions, body.GetInt("dimensions"));
  if (dimensions >= 1 && dimensions <= hidden_size) return std::optional<int64_t>(dimensions);
  return FieldError(ErrorCode::kInvalidArgument, "dimensions",
                    "must be 1 to " + std::to_string(hidden_size) + ", which this model has");
}

}  // namespace

Result<EmbeddingRequest> ParseEmbeddingRequest(const Json& body, const ChatDefaults& defaults,
                                               int64_t hidden_size) {
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY_OK(RefuseUnsupported(body, kUnsupported));
  EmbeddingRequest request;
  KVASIR_TRY(request.model, ParseModelName(body));
  KVASIR_TRY(request.is_base64, ParseIsBase64(body));
  KVASIR_TRY(request.dimensions, ParseDimensions(body, hidden_size));
  KVASIR_TRY_OK(ParsePlace(body, defaults.slots, &request.fields));
  const bool has_content = FindSet(body, "input") == nullptr && FindSet(body, "content") != nullptr;
  request.field = has_content ? "content" : "input";
  KVASIR_TRY(request.inputs, ParseTextPrompts(body, request.field, defaults.vocab_size));
  if (request.inputs.size() > kMaxEmbeddingInputs) {
    return FieldError(ErrorCode::kInvalidArgument, request.field,
                      "holds more than 2048 texts; send several requests");
  }
  return request;
}

}  // namespace kvasir
