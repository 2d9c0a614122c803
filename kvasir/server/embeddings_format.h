// EmbeddingsFormat: embeddings as OpenAI's API and llama-server write them.
// Deliberately whole answers only: there is nothing to stream.
#ifndef KVASIR_SERVER_EMBEDDINGS_FORMAT_H_
#define KVASIR_SERVER_EMBEDDINGS_FORMAT_H_

#include <optional>

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

struct EmbeddingsFormatOptions {
  AnswerHead head;
  bool is_base64 = false;             // little-endian 32-bit floats
  std::optional<int64_t> dimensions;  // the first ones, brought back to length 1
  bool is_llama_server = false;       // [{index, embedding: [[...]]}]
};

class EmbeddingsFormat final : public AnswerFormat {
 public:
  explicit EmbeddingsFormat(EmbeddingsFormatOptions options) : options_(std::move(options)) {}

  Json Whole(std::span<const AnsweredChoice> results) override;
  std::string Begin(const PromptProgress&) override { return {}; }
  std::string Part(size_t, const AnswerPart&, const AnswerMessage&,
                   std::span<const TokenScores>) override {
    return {};
  }
  std::string ChoiceEnd(size_t, const AnsweredChoice&, std::span<const TokenScores>) override {
    return {};
  }
  std::string End(std::span<const AnsweredChoice>) override { return {}; }
  std::string Error(const ApiError& error) override { return SseEvent(ErrorJson(error)); }

 private:
  Json EmbeddingJson(std::vector<float> embedding) const;

  const EmbeddingsFormatOptions options_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_EMBEDDINGS_FORMAT_H_
