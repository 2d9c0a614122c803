#include "kvasir/engine/draft_source.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/speculative/model_drafter.h"
#include "kvasir/speculative/ngram_drafter.h"

namespace kvasir {
namespace {

Error Mismatch(const std::string& what) {
  return {ErrorCode::kInvalidArgument,
          "the draft model's vocabulary is another: " + what +
              "; use a draft model that was trained with the same tokenizer"};
}

}  // namespace

Result<DraftKind> DraftKindFromName(std::string_view name) {
  if (name == "none") return DraftKind::kNone;
  if (name == "ngram") return DraftKind::kNgram;
  if (name == "model") return DraftKind::kModel;
  return {ErrorCode::kInvalidArgument,
          std::string(name) + " is no kind of drafts; there are none, ngram and model"};
}

Status CheckSameVocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const int64_t both = std::min(target.vocab_size(), draft.vocab_size());
  for (int64_t id = 0; id < both; ++id) {
    const auto token = static_cast<Token>(id);
    if (target.TokenText(token) == draft.TokenText(token)) continue;
    return Mismatch("token " + std::to_string(id) + " is '" + target.TokenText(token) +
                    "' in the model and '" + draft.TokenText(token) + "' in the draft");
  }
  if (target.vocab_size() != draft.vocab_size()) {
    return Mismatch("the model has " + std::to_string(target.vocab_size()) +
                    " tokens and the draft " + std::to_string(draft.vocab_size()) + ", token " +
                    std::to_string(both) + " is the first that only one has");
  }
  return {};
}

Result<std::unique_ptr<DraftSource>> DraftSource::Load(const DraftSourceOptions& options,
                                                       const ModelBundle& target) {
  if (options.kind != DraftKind::kModel) {
    return std::unique_ptr<DraftSource>(new DraftSource(options.kind, nullptr, 0));
  }
  if (options.model.empty()) {
    return {ErrorCode::kInvalidArgument, "drafts of kind model need a draft model; name one"};
  }
  KVASIR_TRY(auto bundle, ModelBundle::Load(options.model, options.bundle));
  for (const ModelBundle* one : {&target, static_cast<const ModelBundle*>(bundle.get())}) {
    if (one->tokenizer() != nullptr) continue;
    return {ErrorCode::kFailedPrecondition,
            one->folder() +
                " has no tokenizer.json, so whether model and draft model speak of "
                "the same tokens cannot be checked"};
  }
  KVASIR_TRY_OK(CheckSameVocabulary(*target.tokenizer(), *bundle->tokenizer()));
  const int64_t sampleable = target.sampleable_tokens();
  if (bundle->model().vocab_size() < sampleable) {
    return Mismatch("its logits are of " + std::to_string(bundle->model().vocab_size()) +
                    " tokens, fewer than the " + std::to_string(sampleable) +
                    " the model may choose");
  }
  return std::unique_ptr<DraftSource>(new DraftSource(options.kind, std::move(bundle), sampleable));
}

std::unique_ptr<Drafter> DraftSource::NewDrafter(const PrefixTree* tree) const {
  if (kind_ == DraftKind::kNone) return nullptr;
  if (kind_ == DraftKind::kNgram) return std::make_unique<NgramDrafter>(NgramOptions{}, tree);
  auto drafter = ModelDrafter::Create(
      {&bundle_->model(), &bundle_->pool(), bundle_->cache_spec(), sampleable_tokens_});
  KVASIR_CHECK(drafter.ok());
  return std::move(drafter).value();
}

std::string DraftSource::Describe() const {
  if (kind_ == DraftKind::kNone) return "drafts: none";
  if (kind_ == DraftKind::kNgram) return "drafts: what was said before";
  return "drafts: " + bundle_->name();
}

}  // namespace kvasir
