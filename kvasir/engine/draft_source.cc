#include "kvasir/engine/draft_source.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/file.h"
#include "kvasir/speculative/model_drafter.h"
#include "kvasir/speculative/mtp_drafter.h"
#include "kvasir/speculative/ngram_drafter.h"
#include "kvasir/speculative/pair_drafter.h"

namespace kvasir {
namespace {

// Of the target's bytes, where nobody says what its layer that drafts may have.
constexpr size_t kOwnLayerShare = 8;
// Of those bytes, for what is found again: its tokens.
constexpr size_t kIndexShare = 16;

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
  if (name == "mtp") return DraftKind::kMtp;
  return {ErrorCode::kInvalidArgument,
          std::string(name) + " is no kind of drafts; there are none, ngram, model and mtp"};
}

std::string DescribeDrafts(DraftKind kind, const std::string& name) {
  if (kind == DraftKind::kNone) return "none";
  return kind == DraftKind::kNgram ? "what was said before" : name;
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
  DraftKind kind = options.kind;
  if (kind == DraftKind::kModel) {
    if (options.model.empty()) {
      return {ErrorCode::kInvalidArgument, "drafts of kind model need a draft model; name one"};
    }
    if (AssistantConfig::IsIn(options.model)) kind = DraftKind::kMtp;
  }
  auto source = std::unique_ptr<DraftSource>(new DraftSource(kind, target));
  source->log_ = options.bundle.log;
  if (kind == DraftKind::kModel) KVASIR_TRY_OK(source->LoadDraftModel(options));
  if (kind == DraftKind::kMtp) {
    KVASIR_TRY_OK(options.model.empty() ? source->LoadOwnLayer(options)
                                        : source->LoadAssistantModel(options));
  }
  return source;
}

Status DraftSource::LoadDraftModel(const DraftSourceOptions& options) {
  auto loaded = ModelBundle::Load(options.model, options.bundle);
  if (!loaded.ok()) {
    const bool is_memory = loaded.error().code == ErrorCode::kResourceExhausted;
    return WithContext(loaded.error(),
                       is_memory ? "the draft model (--draft-cache-bytes)" : "the draft model");
  }
  bundle_ = *std::move(loaded);
  const size_t least_bytes = bundle_->cache_spec()->BytesAt(1);
  if (bundle_->cache_budget_bytes() < least_bytes) {
    return {ErrorCode::kResourceExhausted,
            "the draft model's cache may have " + std::to_string(bundle_->cache_budget_bytes()) +
                " bytes, and its first tokens take " + std::to_string(least_bytes) +
                "; raise --draft-cache-bytes"};
  }
  for (const ModelBundle* one : {&target_, static_cast<const ModelBundle*>(bundle_.get())}) {
    if (one->tokenizer() != nullptr) continue;
    return {ErrorCode::kFailedPrecondition,
            one->folder() +
                " has no tokenizer.json, so whether model and draft model speak of "
                "the same tokens cannot be checked"};
  }
  KVASIR_TRY_OK(CheckSameVocabulary(*target_.tokenizer(), *bundle_->tokenizer()));
  if (bundle_->model().vocab_size() < target_.sampleable_tokens()) {
    return Mismatch("its logits are of " + std::to_string(bundle_->model().vocab_size()) +
                    " tokens, fewer than the " + std::to_string(target_.sampleable_tokens()) +
                    " the model may choose");
  }
  name_ = bundle_->name();
  return {};
}

// An assistant is published for one model and without a tokenizer; where it has one, it counts.
Status DraftSource::LoadAssistantModel(const DraftSourceOptions& options) {
  const BundleOptions& bundle = options.bundle;
  Backend& backend = target_.backend();
  if (bundle.random_weights) {
    KVASIR_TRY(assistant_,
               MakeRandomAssistant(options.model, target_.config(), backend,
                                   bundle.weight_format.value_or(WeightFormat::kBf16Dot)));
  } else {
    KVASIR_TRY(assistant_, LoadAssistant(options.model, target_.config(), backend,
                                         {.weight_format = bundle.weight_format,
                                          .packed_weights = bundle.packed_weights,
                                          .log = bundle.log}));
  }
  const std::string tokenizer_path = options.model + "/tokenizer.json";
  if (target_.tokenizer() != nullptr && FileExists(tokenizer_path)) {
    KVASIR_TRY(const auto tokenizer, Tokenizer::FromFile(tokenizer_path));
    KVASIR_TRY_OK(CheckSameVocabulary(*target_.tokenizer(), *tokenizer));
  }
  name_ = options.model + ", an assistant";
  return {};
}

// Rows of one layer, of which little is stored: they need no codec that saves.
Status DraftSource::LoadOwnLayer(const DraftSourceOptions& options) {
  const BundleOptions& bundle = options.bundle;
  const Model& model = target_.model();
  Backend& backend = target_.backend();
  if (bundle.random_weights) {
    KVASIR_TRY(head_, MakeRandomMtpHead(target_.config(), model, backend,
                                        bundle.weight_format.value_or(WeightFormat::kBf16Dot)));
  } else {
    KVASIR_TRY(head_, LoadMtpHead(target_.folder(), target_.config(), model, backend,
                                  {.weight_format = bundle.weight_format, .log = bundle.log}));
  }
  head_spec_ = std::make_shared<const KvCacheSpec>(head_->CacheSpec({KvCodec::Kind::kF16}));
  const size_t bytes = bundle.kv_budget_bytes > 0 ? bundle.kv_budget_bytes
                                                  : target_.cache_budget_bytes() / kOwnLayerShare;
  // Half at most, as of other caches: passes, and an embedding beside each state that they join.
  const size_t joined = 2 * sizeof(float) * static_cast<size_t>(model.hidden_size()) *
                        static_cast<size_t>(PairDrafter::kMostPending);
  const size_t scratch =
      model.ScratchBytes(PairDrafter::kMostPending, PairDrafter::kMostSequences) + joined;
  head_index_bytes_ = bytes / kIndexShare;
  const size_t left = bytes - head_index_bytes_;
  const size_t blocks = left - std::min(scratch, left / 2);
  const size_t least = head_spec_->BytesAt(1);
  if (blocks < least) {
    return {ErrorCode::kResourceExhausted,
            "the layer that drafts may have " + std::to_string(bytes) +
                " bytes for its cache and its passes, too few for its first tokens; give "
                "--draft-cache-bytes " +
                std::to_string(2 * least * kIndexShare / (kIndexShare - 1) + kIndexShare) +
                " or more, or more --cache-bytes"};
  }
  head_pool_ = std::make_unique<KvPool>(KvPoolOptions{.budget_bytes = blocks});
  name_ = "the model's own layer (mtp, " + std::to_string(head_->weight_bytes() >> 20) + " MiB)";
  return {};
}

// Ids of text come first, then those of tokens that were added.
int64_t DraftSource::TextTokens() const {
  int64_t text = target_.sampleable_tokens();
  const Tokenizer* const tokenizer = target_.tokenizer();
  const auto is_text = [&](int64_t id) {
    const auto token = static_cast<Token>(id);
    return !tokenizer->IsAdded(token) && !tokenizer->TokenText(token).empty();
  };
  while (tokenizer != nullptr && text > 1 && !is_text(text - 1)) --text;
  return text;
}

std::unique_ptr<Drafter> DraftSource::NewDrafter(const PrefixTree* tree) const {
  if (!is_used()) return nullptr;
  const int64_t sampleable = target_.sampleable_tokens();
  switch (kind_) {
    case DraftKind::kNone:
      return nullptr;
    case DraftKind::kNgram:
      return std::make_unique<NgramDrafter>(NgramOptions{}, tree);
    case DraftKind::kMtp: {
      if (head_ == nullptr) {
        return std::make_unique<MtpDrafter>(
            MtpDrafterParts{assistant_.model.get(), &target_.model(), sampleable});
      }
      auto pairs = PairDrafter::Create({.head = head_.get(),
                                        .pool = head_pool_.get(),
                                        .spec = head_spec_,
                                        .sampleable_tokens = sampleable,
                                        .text_tokens = TextTokens(),
                                        .max_index_bytes = head_index_bytes_,
                                        .log = log_});
      KVASIR_CHECK(pairs.ok());
      return std::move(pairs).value();
    }
    case DraftKind::kModel:
      break;
  }
  DraftModelParts parts = {&bundle_->model(), &bundle_->pool(), bundle_->cache_spec(), sampleable};
  ModelDrafterOptions options = {.log = log_};
  if (const CacheBudget& budget = bundle_->budget(); budget.step_tokens > 0) {
    parts.max_index_bytes = budget.index_bytes;
    options.step_tokens = std::min(options.step_tokens, budget.step_tokens);
  }
  auto drafter = ModelDrafter::Create(std::move(parts), std::move(options));
  KVASIR_CHECK(drafter.ok());
  return std::move(drafter).value();
}

bool DraftSource::is_used() const { return kind_ != DraftKind::kNone; }

std::string DraftSource::Describe() const { return DescribeDrafts(kind_, name_); }

}  // namespace kvasir
