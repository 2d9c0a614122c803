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
#include "kvasir/model/model_loader.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

enum class DraftKind { kNone, kNgram, kModel, kMtp };
// "none", "ngram", "model", "mtp". ERRORS: kInvalidArgument, listing them.
Result<DraftKind> DraftKindFromName(std::string_view name);

struct DraftSourceOptions {
  DraftKind kind = DraftKind::kNone;
  // Folder or file of the draft model, for kModel and kMtp. A kModel that turns out to be an
  // assistant becomes kMtp. Empty for kMtp: the layer that the target's own files bring along.
  std::string model;
  BundleOptions bundle;  // how it is loaded; its cache budget is the drafts'
};

// Its name, "none" or what takes its place, for people.
std::string DescribeDrafts(DraftKind kind, const std::string& name);

// OK if both say the same with the same tokens. ERRORS: kInvalidArgument naming the first token
// that differs.
Status CheckSameVocabulary(const Tokenizer& target, const Tokenizer& draft);

class DraftSource {
 public:
  // `target` outlives the source. ERRORS: as ModelBundle::Load, LoadAssistant and LoadMtpHead;
  // kInvalidArgument
  // from CheckSameVocabulary, or if the kind wants a model and there is none, or none of its kind;
  // kFailedPrecondition if a model has no tokenizer to compare.
  static Result<std::unique_ptr<DraftSource>> Load(const DraftSourceOptions& options,
                                                   const ModelBundle& target);

  DraftKind kind() const { return kind_; }
  // Whether answers are drafted: of some kind, and for a cache that takes drafts.
  bool is_used() const;
  // Null where is_used() is false. `tree`: what the target's engine has cached; it outlives the
  // drafter, as does this source. One drafter per source: they would share a pool.
  std::unique_ptr<Drafter> NewDrafter(const PrefixTree* tree) const;
  // As DescribeDrafts.
  std::string Describe() const;

 private:
  DraftSource(DraftKind kind, const ModelBundle& target) : kind_(kind), target_(target) {}
  Status LoadDraftModel(const DraftSourceOptions& options);
  Status LoadAssistantModel(const DraftSourceOptions& options);
  Status LoadOwnLayer(const DraftSourceOptions& options);
  int64_t TextTokens() const;

  const DraftKind kind_;
  const ModelBundle& target_;
  LogSink log_;
  std::string name_;                     // for people
  std::unique_ptr<ModelBundle> bundle_;  // kModel
  LoadedAssistant assistant_;            // kMtp, unless the layer is the target's own:
  std::unique_ptr<const MtpHead> head_;
  std::shared_ptr<const KvCacheSpec> head_spec_;
  std::unique_ptr<KvPool> head_pool_;
  size_t head_index_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_DRAFT_SOURCE_H_
