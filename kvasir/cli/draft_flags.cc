#include "kvasir/cli/draft_flags.h"

#include <cstdio>

namespace kvasir {

void DraftFlags::Declare(Flags& flags) {
  flags.Add("--draft-model,--model-draft", &model,
            "a small model with the same vocabulary that guesses ahead; answers stay the same");
  flags.Add(
      "--draft-kind", &kind,
      "who guesses ahead: none, ngram (what was said before), model, or mtp (the model's own layer "
      "for it, or an assistant that reads the model's cache); default: what --draft-model or the "
      "package's draft is, else none");
  flags.Add("--draft-max,--draft", &given_max_drafts,
            "tokens guessed per step at most; default 16");
  flags.Add("--draft-cache-bytes", &cache_bytes,
            "what of --cache-bytes is the draft model's; 0: an eighth");
}

Result<DraftKind> DraftFlags::Kind() const {
  if (kind.empty()) return model.empty() ? DraftKind::kNone : DraftKind::kModel;
  const auto named = DraftKindFromName(kind);
  if (!named.ok()) return {named.error().code, "--draft-kind: " + named.error().message};
  return *named;
}

// A package brings its draft along.
Result<std::string> DraftFlags::Model(const std::string& target) const {
  if (!model.empty() || IsGguf(target)) return model;
  KVASIR_TRY(const PackageFile package, PackageFile::Load(target));
  return package.draft.empty() ? std::string() : target + "/" + package.draft;
}

Result<DraftFlags::Choice> DraftFlags::Choose(const std::string& target) const {
  Choice choice;
  KVASIR_TRY(choice.kind, Kind());
  KVASIR_TRY(choice.model, Model(target));
  if (kind.empty() && !choice.model.empty()) choice.kind = DraftKind::kModel;
  // What a package brings is of another kind then.
  const bool is_own_layer =
      choice.kind == DraftKind::kMtp && model.empty() && !AssistantConfig::IsIn(choice.model);
  if (is_own_layer) choice.model.clear();
  if (choice.kind != DraftKind::kModel && choice.kind != DraftKind::kMtp) choice.model.clear();
  return choice;
}

Status DraftFlags::Prepare(ModelFlags& target) const {
  KVASIR_TRY(const std::string folder, target.Folder());
  KVASIR_TRY(const Choice choice, Choose(folder));
  const bool has_model = !choice.model.empty();
  const bool has_own_layer = !has_model && choice.kind == DraftKind::kMtp;
  if (has_own_layer && !target.random_weights) {
    const Status fits = CheckMtpHead(folder);
    if (!fits.ok()) return WithContext(fits.error(), "--draft-kind mtp");
  }
  if (!has_model && choice.kind == DraftKind::kModel) {
    return {ErrorCode::kInvalidArgument,
            "--draft-kind " + kind + " needs --draft-model; " + folder + " brings no draft"};
  }
  if (!has_model && !model.empty()) {
    return {ErrorCode::kInvalidArgument,
            "--draft-model is of no use with --draft-kind " + kind + "; leave one of them out"};
  }
  if (has_model && !FileExists(choice.model) && !DirectoryExists(choice.model)) {
    return {ErrorCode::kNotFound, choice.model + ": there is no such draft model"};
  }
  if (choice.kind == DraftKind::kNone && kind.empty() && given_max_drafts) {
    return {ErrorCode::kInvalidArgument,
            "--draft-max means nothing without drafts; give --draft-kind or --draft-model"};
  }
  KVASIR_TRY_OK(CheckRange("--draft-max", MaxDrafts(), 0, 256));
  KVASIR_TRY(const size_t bytes, ParseBytes("--draft-cache-bytes", cache_bytes));
  // An assistant reads the target's cache and has none.
  const bool has_cache = has_own_layer || (has_model && !AssistantConfig::IsIn(choice.model));
  if (has_cache) target.draft_bytes = bytes;
  if (has_cache || cache_bytes == "0") return {};
  return {ErrorCode::kInvalidArgument,
          "--draft-cache-bytes means nothing without drafts "
          "that have a cache of their own; leave it out"};
}

Result<std::unique_ptr<DraftSource>> DraftFlags::Load(const ModelFlags& target_flags,
                                                      const ModelBundle& target) const {
  KVASIR_TRY(const Choice choice, Choose(target.folder()));
  DraftSourceOptions options = {.kind = choice.kind, .model = choice.model};
  KVASIR_TRY(options.bundle, target_flags.Options());
  options.bundle.kv = {};
  options.bundle.kv_budget_bytes = target.budget().draft_bytes;
  options.bundle.draft_bytes.reset();
  options.bundle.text_need = TextNeed::kTokenizer;  // to compare; it never chats
  KVASIR_TRY(auto source, DraftSource::Load(options, target));
  if (options.kind != DraftKind::kNone) {
    Log(target_flags.log, LogLevel::kInfo, "drafts: " + source->Describe());
  }
  return source;
}

}  // namespace kvasir
