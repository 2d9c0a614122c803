#include "kvasir/cli/draft_flags.h"

#include <cstdio>

namespace kvasir {

void DraftFlags::Declare(Flags& flags) {
  flags.Add("--draft-model,--model-draft", &model,
            "a small model with the same vocabulary that guesses ahead; answers stay the same");
  flags.Add(
      "--draft-kind", &kind,
      "who guesses ahead: none, ngram (what was said before), model, or mtp (an assistant that "
      "reads the model's cache); default: what --draft-model or the package's draft is, else "
      "none");
  flags.Add("--draft-max,--draft", &max_drafts, "tokens guessed per step at most");
  flags.Add("--draft-cache-bytes", &cache_bytes,
            "upper bound of the draft model's KV cache; 0: an eighth of the model's");
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

Status DraftFlags::Check(const ModelFlags& target) const {
  KVASIR_TRY(const DraftKind named, Kind());
  const bool wants_model = named == DraftKind::kModel || named == DraftKind::kMtp;
  KVASIR_TRY(const std::string folder, target.Folder());
  KVASIR_TRY(const std::string draft, Model(folder));
  if (wants_model && draft.empty()) {
    return {ErrorCode::kInvalidArgument,
            "--draft-kind " + kind + " needs --draft-model; " + folder + " brings no draft"};
  }
  if (!wants_model && !model.empty()) {
    return {ErrorCode::kInvalidArgument,
            "--draft-model is of no use with --draft-kind " + kind + "; leave one of them out"};
  }
  if (cache_bytes != "0" && draft.empty()) {
    return {ErrorCode::kInvalidArgument,
            "--draft-cache-bytes means nothing without a draft model; leave it out"};
  }
  if (!draft.empty() && !FileExists(draft) && !DirectoryExists(draft)) {
    return {ErrorCode::kNotFound, draft + ": there is no such draft model"};
  }
  if (max_drafts < 0 || max_drafts > 256) {
    return {ErrorCode::kInvalidArgument, "--draft-max must be 0 to 256"};
  }
  KVASIR_TRY([[maybe_unused]] const size_t bytes, ParseBytes("--draft-cache-bytes", cache_bytes));
  return {};
}

Result<std::unique_ptr<DraftSource>> DraftFlags::Load(const ModelFlags& target_flags,
                                                      const ModelBundle& target) const {
  DraftSourceOptions options;
  KVASIR_TRY(options.kind, Kind());
  KVASIR_TRY(const std::string draft, Model(target.folder()));
  if (kind.empty() && !draft.empty()) options.kind = DraftKind::kModel;
  if (options.kind == DraftKind::kModel || options.kind == DraftKind::kMtp) options.model = draft;
  KVASIR_TRY(options.bundle, target_flags.Options());
  options.bundle.kv = {};
  KVASIR_TRY(options.bundle.kv_budget_bytes, ParseBytes("--draft-cache-bytes", cache_bytes));
  if (options.bundle.kv_budget_bytes == 0) {
    options.bundle.kv_budget_bytes = target.cache_budget_bytes() / 8;
  }
  KVASIR_TRY(auto source, DraftSource::Load(options, target));
  if (options.kind != DraftKind::kNone) {
    Log(target_flags.log, LogLevel::kInfo, source->Describe());
  }
  return source;
}

}  // namespace kvasir
