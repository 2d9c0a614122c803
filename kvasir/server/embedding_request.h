// EmbeddingRequest: the body of POST /v1/embeddings and of llama-server's /embedding.
// Deliberately without a tokenizer, as TextRequest.
#ifndef KVASIR_SERVER_EMBEDDING_REQUEST_H_
#define KVASIR_SERVER_EMBEDDING_REQUEST_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/server/text_request.h"

namespace kvasir {

struct EmbeddingRequest {
  std::string model;  // empty: not given
  std::string field;  // where the texts came from: "input" or "content"
  std::vector<TextPrompt> inputs;
  bool is_base64 = false;
  std::optional<int64_t> dimensions;  // unset: all
  GenerationFields fields;            // ParsePlace's; the others are as made
};

inline constexpr size_t kMaxEmbeddingInputs = 2048;  // as OpenAI

// `hidden_size`: the dimensions there are. ERRORS: as ParseChatRequest.
Result<EmbeddingRequest> ParseEmbeddingRequest(const Json& body, const ChatDefaults& defaults,
                                               int64_t hidden_size);

}  // namespace kvasir

#endif  // KVASIR_SERVER_EMBEDDING_REQUEST_H_
