// DraftSource: where drafts for a model come from, loaded and checked against it.
// Deliberately without steps: it makes the Drafter that an Engine uses.
#ifndef KVASIR_ENGINE_DRAFT_SOURCE_H_
#define KVASIR_ENGINE_DRAFT_SOURCE_H_

#include <memory>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

enum class DraftKind { kNone, kNgram, kModel };
// "none", "ngram", "model". ERRORS: kInvalidArgument, listing them.
Result<DraftKind> DraftKindFromName(std::string_view name);

struct DraftSourceOptions {
  DraftKind kind = DraftKind::kNone;
  std::string model;     // folder or file of the draft model, for kModel
  BundleOptions bundle;  // how it is loaded; its cache budget is the draft caches'
};

// OK if both say the same with the same tokens. ERRORS: kInvalidArgument naming the first token
// that differs.
Status CheckSameVocabulary(const Tokenizer& target, const Tokenizer& draft);

class DraftSource {
 public:
  // ERRORS: as ModelBundle::Load; kInvalidArgument from CheckSameVocabulary, or if the kind wants a
  // model and there is none; kFailedPrecondition if a model has no tokenizer to compare.
  static Result<std::unique_ptr<DraftSource>> Load(const DraftSourceOptions& options,
                                                   const ModelBundle& target);

  DraftKind kind() const { return kind_; }
  // Null for kNone. `tree`: what the target's engine has cached; it outlives the drafter, as does
  // this source. One drafter per source: they would share a pool.
  std::unique_ptr<Drafter> NewDrafter(const PrefixTree* tree) const;
  // "drafts: n-grams", for a log.
  std::string Describe() const;

 private:
  DraftSource(DraftKind kind, std::unique_ptr<ModelBundle> bundle, int64_t sampleable_tokens)
      : kind_(kind), bundle_(std::move(bundle)), sampleable_tokens_(sampleable_tokens) {}

  const DraftKind kind_;
  const std::unique_ptr<ModelBundle> bundle_;
  const int64_t sampleable_tokens_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_DRAFT_SOURCE_H_
