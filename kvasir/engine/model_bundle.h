// ModelBundle: all that one model folder gives: weights, tokenizer, chat template, stop tokens, and
// the backend and cache pool they run on.
// Deliberately without requests: it is loaded once and shared.
#ifndef KVASIR_ENGINE_MODEL_BUNDLE_H_
#define KVASIR_ENGINE_MODEL_BUNDLE_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/log.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/chat/template_loader.h"
#include "kvasir/chat/unfinished_answer.h"
#include "kvasir/engine/cache_budget.h"
#include "kvasir/engine/cached_sequence.h"
#include "kvasir/engine/chat_turns.h"
#include "kvasir/engine/model_text.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/kv/kv_policy.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/model/model_loader.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

// What of its text a model is asked for: token ids need none.
enum class TextNeed { kNone, kTokenizer, kChat };

struct BundleOptions {
  CpuBackendOptions backend;
  std::optional<WeightFormat> weight_format;  // unset: as stored
  // A folder where packed weights are kept in files, which later loads map instead of packing
  // (LoadOptions). Empty: they are not kept.
  std::string packed_weights;
  KvPolicy kv;  // default f16, every row
  // Upper bound of the cache pool. 0: DefaultCacheBytes.
  size_t kv_budget_bytes = 0;
  // Of them, what is left to a draft model (CacheBudget). 0: an eighth. Unset: there is none.
  std::optional<size_t> draft_bytes;
  // For an engine, whose scratch and index then come out of kv_budget_bytes as well: its largest
  // step and the answers it makes at once. 0: all of it is the pool's.
  int64_t engine_step_tokens = 0;
  int64_t engine_streams = 1;
  // Weights are made up in the shapes that config.json gives. There is a tokenizer if there is one.
  bool random_weights = false;
  // What is missing of this is an error before the weights are read (CheckText).
  TextNeed text_need = TextNeed::kNone;
  LogSink log;
};

class ModelBundle {
 public:
  // ERRORS: kNotFound, kIo, kCorrupt, kUnsupported, kResourceExhausted, naming file and field; as
  // CheckText of options.text_need. Else a folder without tokenizer.json or chat template loads;
  // tokenizer() and chat() are null then.
  static Result<std::unique_ptr<ModelBundle>> Load(const std::string& folder,
                                                   const BundleOptions& options);

  const std::string& folder() const { return folder_; }
  // Last component of the folder: what /v1/models calls it.
  std::string name() const;
  const Model& model() const { return *loaded_.model; }
  const ModelConfig& config() const { return loaded_.config; }
  Backend& backend() const { return *backend_; }
  KvPool& pool() { return *pool_; }
  size_t cache_budget_bytes() const { return pool_->budget_bytes(); }
  // How it was divided; step_tokens is 0 where that was not asked for.
  const CacheBudget& budget() const { return budget_; }
  const std::shared_ptr<const KvCacheSpec>& cache_spec() const { return spec_; }
  // How it is stored, and its bytes per token, in one line.
  std::string DescribeCache() const { return policy_.Describe(*spec_); }
  // FingerprintOf the model and how its cache is stored, the same in whatever runs compute the same
  // bits. ERRORS: as FingerprintOf. THREADS: any; but the first call runs the model, so nobody else
  // may meanwhile.
  Result<std::string> Fingerprint() const;
  const Tokenizer* tokenizer() const { return text_.tokenizer.get(); }
  const ChatTemplateSet* chat() const { return text_.chat ? &*text_.chat : nullptr; }
  // What `kvasir create` says of a packaged folder; all empty for others.
  const PackageFile& package() const { return text_.package; }
  // Tokens that end an answer.
  const std::vector<Token>& stop_tokens() const { return text_.stop_tokens; }
  // Special tokens by which answers of chats are read, such as those around thoughts: their text
  // is to be kept.
  std::vector<Token> MarkersOf(const ChatDialect& dialect) const;
  // Logits that may be sampled: those of ids the tokenizer knows. Models pad their vocabulary.
  int64_t sampleable_tokens() const;

  // ERRORS: kFailedPrecondition without tokenizer, or, for chats, chat template.
  Status CheckText(TextNeed need) const;

  // The messages (an array of {role, content}) as a prompt's tokens, ready for an answer. A
  // package's system message stands first where they bring none; what the template does not take in
  // its place stands elsewhere (ChatTurns). `extra` holds further template variables (an object or
  // null). ERRORS: as CheckText; kInvalidArgument from the template, or if the last message cannot
  // be gone on with.
  Result<std::vector<Token>> ChatTokens(const Json& messages, const Json& extra = {},
                                        LastAnswer last_answer = LastAnswer::kUnfinished) const;

  // The same before it becomes tokens.
  Result<TextSegments> ChatText(const Json& messages, const Json& extra = {},
                                LastAnswer last_answer = LastAnswer::kUnfinished) const;

  // The messages with a package's system message first, where they bring none.
  Json WithSystem(const Json& messages) const;
  // These as the template takes them, which ChatText makes of its messages as well: for who changes
  // what tells calls and results from other messages first.
  Json InTurns(const Json& messages) const { return turns_.Apply(WithSystem(messages)); }

  Result<CachedSequence> NewSequence();

 private:
  ModelBundle() = default;

  std::string folder_;
  std::unique_ptr<Backend> backend_;
  LoadedModel loaded_;
  KvPolicy policy_;
  std::shared_ptr<const KvCacheSpec> spec_;
  CacheBudget budget_;
  std::unique_ptr<KvPool> pool_;
  ModelText text_;
  ChatTurns turns_;  // of the chat template
  mutable std::mutex fingerprint_mutex_;
  mutable std::string fingerprint_;  // empty: nobody has asked yet
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_MODEL_BUNDLE_H_
