#include "kvasir/formats/package_file.h"

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

constexpr int64_t kVersion = 1;

}  // namespace

Json PackageFile::ToJson() const {
  Json json = Json::Object{{"version", kVersion}};
  if (!weights.empty()) json.Set("weights", weights);
  if (!system.empty()) json.Set("system", system);
  if (!draft.empty()) {
    json.Set("draft", Json::Object{{"folder", draft}, {"weights", draft_weights}});
  }
  return json;
}

Result<PackageFile> PackageFile::Parse(const Json& json) {
  KVASIR_TRY(const int64_t version, json.GetInt("version"));
  if (version != kVersion) {
    return {ErrorCode::kUnsupported, "field 'version' is " + std::to_string(version) +
                                         ", this build reads " + std::to_string(kVersion)};
  }
  PackageFile file;
  KVASIR_TRY(file.weights, json.GetStringOr("weights", ""));
  KVASIR_TRY(file.system, json.GetStringOr("system", ""));
  const Json* const draft = json.Find("draft");
  if (draft == nullptr || draft->is_null()) return file;
  KVASIR_TRY(file.draft, draft->GetString("folder"));
  KVASIR_TRY(file.draft_weights, draft->GetStringOr("weights", ""));
  if (file.draft.empty() || file.draft.find('/') != std::string::npos || file.draft == "..") {
    return {ErrorCode::kCorrupt, "field 'draft.folder' must be the name of a folder beside it"};
  }
  return file;
}

Result<PackageFile> PackageFile::Load(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kPackageFileName);
  if (!FileExists(path)) return PackageFile();
  KVASIR_TRY(const Json json, Json::ParseFile(path, kMostTextBytes));
  auto file = Parse(json);
  if (!file.ok()) return WithContext(file.error(), path);
  return file;
}

}  // namespace kvasir
