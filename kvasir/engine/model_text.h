// ModelText: what a model's folder or GGUF file gives for text: tokenizer, chat template, the
// tokens that end an answer, and what its package says.
#ifndef KVASIR_ENGINE_MODEL_TEXT_H_
#define KVASIR_ENGINE_MODEL_TEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/log.h"
#include "kvasir/base/token.h"
#include "kvasir/chat/template_loader.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

// What a model's family wants of its tokenizer beyond tokenizer.json: Gemma 4 was trained with a
// BOS that its file leaves to the chat template.
TokenizerOptions TokenizerOptionsFor(const ModelConfig& config);

struct ModelText {
  // Both are optional: token ids need neither.
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplateSet> chat;
  std::vector<Token> stop_tokens;
  PackageFile package;  // empty but for what `kvasir create` made

  // `path` as LoadModel takes it. What is there must be right.
  // `log` gets a warning where a text may be read otherwise than the model was trained with.
  // ERRORS: kIo, kCorrupt, kUnsupported, kResourceExhausted, naming file and field.
  static Result<ModelText> Load(const std::string& path, const ModelConfig& config,
                                const LogSink& log = {});
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_MODEL_TEXT_H_
