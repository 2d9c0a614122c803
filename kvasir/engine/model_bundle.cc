#include "kvasir/engine/model_bundle.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "kvasir/base/system_info.h"
#include "kvasir/engine/chat_turns.h"
#include "kvasir/engine/model_fingerprint.h"
#include "kvasir/model/families.h"

namespace kvasir {
namespace {

// A budget is an upper bound, but one that this machine cannot keep ends in the system's hands.
void WarnOfBudget(size_t budget_bytes, size_t available_bytes, const LogSink& log) {
  if (available_bytes == 0 || budget_bytes <= available_bytes) return;
  Log(log, LogLevel::kWarning,
      "the cache may have " + std::to_string(budget_bytes >> 20) + " MiB and " +
          std::to_string(available_bytes >> 20) +
          " MiB of memory are available: a full cache would end this program");
}

constexpr size_t kDraftShare = 8;

Result<CacheBudget> DivideCache(const Model& model, const BundleOptions& options,
                                size_t available_bytes) {
  const size_t total = options.kv_budget_bytes > 0
                           ? options.kv_budget_bytes
                           : DefaultCacheBytes(available_bytes, model.weight_bytes());
  const size_t asked = options.draft_bytes.value_or(0);
  const size_t draft = options.draft_bytes && asked == 0 ? total / kDraftShare : asked;
  if (draft >= total) {
    return {ErrorCode::kInvalidArgument, "the draft model's cache of " + std::to_string(draft) +
                                             " bytes leaves nothing of the " +
                                             std::to_string(total) +
                                             " of the whole cache; lower --draft-cache-bytes"};
  }
  if (options.engine_step_tokens == 0) {
    return CacheBudget{.total_bytes = total, .block_bytes = total - draft, .draft_bytes = draft};
  }
  return PlanCacheBudget(model, {.total_bytes = total,
                                 .draft_bytes = draft,
                                 .step_tokens = options.engine_step_tokens,
                                 .streams = options.engine_streams});
}

// What the model is, its config says before minutes of weights are read.
Status CheckCache(const ModelConfig& config, const KvPolicy& policy) {
  const DecoderSpec decoder = MakeDecoderSpec(config);
  KVASIR_TRY(const KvCacheSpec spec,
             policy.Apply(DecoderCacheSpec(decoder, {}), decoder.query_heads));
  return spec.Validate();
}

int64_t LocalSeconds() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return static_cast<int64_t>(now) + local.tm_gmtoff;
}

}  // namespace

Result<std::unique_ptr<ModelBundle>> ModelBundle::Load(const std::string& folder,
                                                       const BundleOptions& options) {
  auto bundle = std::unique_ptr<ModelBundle>(new ModelBundle());
  bundle->folder_ = folder;
  const size_t available_bytes = AvailableMemoryBytes();  // weights may be pages that come later
  KVASIR_TRY(bundle->backend_, MakeCpuBackend(options.backend));
  KVASIR_TRY(const ModelConfig config, LoadModelConfig(folder));
  KVASIR_TRY_OK(CheckCache(config, options.kv));
  // Before the weights: what it takes to make a tokenizer is free again when they come.
  KVASIR_TRY(bundle->text_, ModelText::Load(folder, config, options.log));
  KVASIR_TRY_OK(bundle->CheckText(options.text_need));
  if (bundle->chat() != nullptr) bundle->turns_ = ChatTurns::Of(*bundle->chat());
  ReturnFreedMemory();
  if (options.random_weights) {
    KVASIR_TRY(bundle->loaded_,
               MakeRandomModel(folder, *bundle->backend_,
                               options.weight_format.value_or(WeightFormat::kBf16Dot)));
  } else {
    KVASIR_TRY(bundle->loaded_, LoadModel(folder, *bundle->backend_,
                                          {.weight_format = options.weight_format,
                                           .packed_weights = options.packed_weights,
                                           .log = options.log}));
  }
  const Model& model = bundle->model();
  bundle->policy_ = options.kv;
  KVASIR_TRY(KvCacheSpec spec, options.kv.Apply(model.CacheSpec({}), model.query_heads()));
  KVASIR_TRY_OK(spec.Validate());
  bundle->spec_ = std::make_shared<const KvCacheSpec>(std::move(spec));
  KVASIR_TRY(bundle->budget_, DivideCache(model, options, available_bytes));
  WarnOfBudget(bundle->budget_.total_bytes, available_bytes, options.log);
  bundle->pool_ =
      std::make_unique<KvPool>(KvPoolOptions{.budget_bytes = bundle->budget_.block_bytes});
  return bundle;
}

std::string ModelBundle::name() const {
  std::filesystem::path path = std::filesystem::path(folder_).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  return path.filename().string();
}

std::vector<Token> ModelBundle::MarkersOf(const ChatDialect& dialect) const {
  std::vector<Token> markers;
  if (tokenizer() == nullptr) return markers;
  for (const std::string& marker : dialect.Markers()) {
    const std::optional<Token> token = tokenizer()->TokenToId(marker);
    if (token && tokenizer()->IsSpecial(*token)) markers.push_back(*token);
  }
  return markers;
}

Result<std::string> ModelBundle::Fingerprint() const {
  const std::lock_guard lock(fingerprint_mutex_);
  if (fingerprint_.empty()) {
    KVASIR_TRY(fingerprint_, FingerprintOf(model(), policy_));
  }
  return fingerprint_;
}

int64_t ModelBundle::sampleable_tokens() const {
  const int64_t logits = model().vocab_size();
  return tokenizer() == nullptr ? logits : std::min(logits, tokenizer()->vocab_size());
}

Result<std::vector<Token>> ModelBundle::ChatTokens(const Json& messages, const Json& extra,
                                                   LastAnswer last_answer) const {
  KVASIR_TRY(const TextSegments segments, ChatText(messages, extra, last_answer));
  return tokenizer()->EncodeSegments(segments, {.add_special = false, .parse_special = true});
}

Json ModelBundle::WithSystem(const Json& messages) const {
  Json conversation = messages;
  if (!package().system.empty() && messages.is_array() && !BeginsWithSystem(messages)) {
    Json::Array& all = conversation.as_array();
    all.insert(all.begin(), Json::Object{{"role", "system"}, {"content", package().system}});
  }
  return conversation;
}

Status ModelBundle::CheckText(TextNeed need) const {
  if (need == TextNeed::kNone) return {};
  if (tokenizer() == nullptr) {
    return {ErrorCode::kFailedPrecondition,
            folder_ +
                " has no tokenizer (tokenizer.json), without which no text can be read or "
                "written; 'kvasir logits' takes token ids"};
  }
  if (need == TextNeed::kChat && chat() == nullptr) {
    return {ErrorCode::kFailedPrecondition,
            folder_ +
                " has no chat template, without which there are no chats; 'kvasir generate' "
                "takes plain text without --chat"};
  }
  return {};
}

Result<TextSegments> ModelBundle::ChatText(const Json& messages, const Json& extra,
                                           LastAnswer last_answer) const {
  KVASIR_TRY_OK(CheckText(TextNeed::kChat));
  Json conversation = InTurns(messages);
  const bool goes_on = last_answer == LastAnswer::kUnfinished && EndsUnfinished(conversation);
  if (goes_on) {
    KVASIR_TRY(conversation, MarkEnd(std::move(conversation)));
  }
  Json variables = Json::Object{{"messages", std::move(conversation)},
                                {"tools", nullptr},
                                {"add_generation_prompt", !goes_on}};
  if (extra.is_object()) {
    for (const auto& [key, value] : extra.as_object()) variables.Set(key, value);
  }
  RenderOptions options;
  options.local_seconds = LocalSeconds();
  KVASIR_TRY(TextSegments prompt, chat()->Render(variables, options));
  return goes_on ? UpToMark(std::move(prompt)) : std::move(prompt);
}

Result<CachedSequence> ModelBundle::NewSequence() {
  return CachedSequence::Create(&model(), pool_.get(), spec_);
}

}  // namespace kvasir
