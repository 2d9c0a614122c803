#include "kvasir/convert/package_draft.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "kvasir/model/assistant_model.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// An assistant reads the model's cache, which has to be as it expects.
Status CheckAssistant(const ModelSource& model, const ModelSource& draft) {
  if (!AssistantConfig::Describes(draft.config())) return {};
  const auto assistant = AssistantConfig::Parse(draft.config());
  if (!assistant.ok()) return WithContext(assistant.error(), draft.path() + "/config.json");
  const auto target = ModelConfig::Parse(model.config());
  if (!target.ok()) return WithContext(target.error(), model.path());
  const Status fits = AssistantModel::CheckTarget(*assistant, *target);
  if (!fits.ok()) return WithContext(fits.error(), draft.path());
  return {};
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> TokenizerOf(const ModelSource& source) {
  for (const SourceFile& file : source.files()) {
    if (file.name != "tokenizer.json") continue;
    const auto json = Json::Parse(file.contents);
    if (!json.ok()) return WithContext(json.error(), source.path() + "/tokenizer.json");
    auto tokenizer = Tokenizer::FromJson(*json);
    if (!tokenizer.ok()) return WithContext(tokenizer.error(), source.path() + "/tokenizer.json");
    return tokenizer;
  }
  return std::unique_ptr<const Tokenizer>();
}

Status CheckDraftIsAnother(const std::string& model_path, const std::string& draft_path) {
  std::error_code error;
  const fs::path model = fs::weakly_canonical(model_path, error);
  const fs::path draft = fs::weakly_canonical(draft_path, error);
  if (model != draft) return {};
  return {ErrorCode::kInvalidArgument, "DRAFT and FROM are both " + model.string() +
                                           "; a draft is a smaller model with the same tokens"};
}

Status CheckDraftVocabulary(const ModelSource& model, const ModelSource& draft) {
  KVASIR_TRY_OK(CheckAssistant(model, draft));
  KVASIR_TRY(const auto tokens, TokenizerOf(model));
  KVASIR_TRY(const auto draft_tokens, TokenizerOf(draft));
  if (tokens == nullptr || draft_tokens == nullptr) {
    if (model.vocab_size() == draft.vocab_size()) return {};
    return {ErrorCode::kInvalidArgument,
            draft.path() + " has a vocabulary of " + std::to_string(draft.vocab_size()) +
                " tokens and " + model.path() + " one of " + std::to_string(model.vocab_size()) +
                "; a draft needs the same tokens"};
  }
  const int64_t count = std::max(tokens->vocab_size(), draft_tokens->vocab_size());
  for (Token id = 0; id < count; ++id) {
    const std::string wanted = tokens->TokenText(id);
    const std::string other = draft_tokens->TokenText(id);
    if (wanted == other) continue;
    return {ErrorCode::kInvalidArgument, "token " + std::to_string(id) + " is '" + wanted +
                                             "' in " + model.path() + " and '" + other + "' in " +
                                             draft.path() + "; a draft needs the same tokens"};
  }
  return {};
}

}  // namespace kvasir
