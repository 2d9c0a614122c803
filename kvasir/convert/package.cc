#include "kvasir/convert/package.h"

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "kvasir/base/file.h"
#include "kvasir/chat/chat_template.h"
#include "kvasir/convert/convert_model.h"
#include "kvasir/convert/package_draft.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

struct Parameter {
  std::string_view name;
  std::string_view field;  // of generation_config.json
  double lowest;
  double highest;
};
constexpr std::array<Parameter, 5> kParameters = {{
    {"temperature", "temperature", 0, 100},
    {"top_k", "top_k", 0, 1e9},
    {"top_p", "top_p", 0, 1},
    {"min_p", "min_p", 0, 1},
    {"repeat_penalty", "repetition_penalty", 0.01, 100},
}};

Result<double> Number(const std::string& name, const std::string& text, double lowest,
                      double highest) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= lowest && value <= highest)) {
    return {ErrorCode::kInvalidArgument, "PARAMETER " + name + " is '" + text.substr(0, 40) +
                                             "', it must be a number from " + Json(lowest).Dump() +
                                             " to " + Json(highest).Dump()};
  }
  return value;
}

// Sets what one PARAMETER line says in `generation`.
Status Apply(const std::string& name, const std::string& text, Json* generation) {
  std::string known;
  for (const Parameter& parameter : kParameters) {
    known += std::string(parameter.name) + ", ";
    if (parameter.name != name) continue;
    KVASIR_TRY(const double value, Number(name, text, parameter.lowest, parameter.highest));
    if (name == "top_k") {
      generation->Set(parameter.field, static_cast<int64_t>(value));
    } else {
      generation->Set(parameter.field, value);
    }
    if (name == "temperature") generation->Set("do_sample", value > 0);
    return {};
  }
  return {ErrorCode::kInvalidArgument,
          "PARAMETER '" + name.substr(0, 40) + "' is unknown; use " + known + "stop"};
}

const SourceFile* FindFile(const ModelSource& source, std::string_view name) {
  for (const SourceFile& file : source.files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

// generation_config.json of the package: the model's own with the PARAMETER lines on top.
Result<Json> Generation(const ModelSource& source, const Modelfile& file) {
  Json generation = Json::Object();
  if (const SourceFile* own = FindFile(source, "generation_config.json")) {
    auto parsed = Json::Parse(own->contents);
    if (!parsed.ok()) return WithContext(parsed.error(), source.path() + "/generation_config.json");
    if (parsed->is_object()) generation = *std::move(parsed);
  }
  std::unique_ptr<const Tokenizer> tokenizer;
  for (const auto& [name, text] : file.parameters) {
    if (name != "stop") {
      KVASIR_TRY_OK(Apply(name, text, &generation));
      continue;
    }
    const SourceFile* const json = FindFile(source, "tokenizer.json");
    if (tokenizer == nullptr && json != nullptr) {
      KVASIR_TRY(const Json parsed, Json::Parse(json->contents));
      KVASIR_TRY(tokenizer, Tokenizer::FromJson(parsed));
    }
    const auto token = tokenizer == nullptr ? std::nullopt : tokenizer->TokenToId(text);
    if (!token) {
      return {ErrorCode::kInvalidArgument,
              "PARAMETER stop '" + text.substr(0, 40) +
                  "' is no single token of the model; longer stops are given with each request"};
    }
    const Json* own = generation.Find("eos_token_id");
    if (own == nullptr) own = source.config().Find("eos_token_id");
    Json stops = Json::Array();
    if (own != nullptr && own->is_int()) stops.Append(*own);
    if (own != nullptr && own->is_array()) stops = *own;
    stops.Append(static_cast<int64_t>(*token));
    generation.Set("eos_token_id", std::move(stops));
  }
  return generation;
}

// What is checked and decided before anything is written.
struct Plan {
  std::optional<ModelSource> model;
  std::optional<ModelSource> draft;
  PlanOptions model_options;
  PlanOptions draft_options;
  Json generation;
};

std::string Resolved(const PackageOptions& options, const std::string& path) {
  return (fs::path(options.base) / path).string();
}

Result<Plan> MakePlan(const PackageOptions& options) {
  const Modelfile& file = options.file;
  if (file.draft.empty() && !options.quantize_draft.empty()) {
    return {ErrorCode::kInvalidArgument,
            "--quantize-draft says how to quantize a draft, and there is none; add --draft"};
  }
  Plan plan;
  const std::string from = Resolved(options, file.from);
  if (!file.draft.empty()) {
    KVASIR_TRY_OK(CheckDraftIsAnother(from, Resolved(options, file.draft)));
  }
  KVASIR_TRY(plan.model, ModelSource::Open(from));
  const auto type = [](const std::string& name) { return name.empty() ? "stored" : name; };
  KVASIR_TRY(plan.model_options, PlanFor(*plan.model, type(options.quantize), 0));
  KVASIR_TRY(plan.generation, Generation(*plan.model, file));
  if (!file.chat_template.empty()) {
    const auto parsed = ChatTemplate::Parse(file.chat_template, "TEMPLATE");
    if (!parsed.ok()) {
      return {parsed.error().code,
              parsed.error().message + " (templates are Jinja, as in chat_template.jinja)"};
    }
  }
  if (file.draft.empty()) return plan;
  KVASIR_TRY(plan.draft, ModelSource::Open(Resolved(options, file.draft)));
  KVASIR_TRY_OK(CheckDraftVocabulary(*plan.model, *plan.draft));
  KVASIR_TRY(plan.draft_options, PlanFor(*plan.draft, type(options.quantize_draft), 0));
  if (plan.draft_options.quantize) plan.draft_options.quantize->is_draft = true;
  return plan;
}

std::string Label(const ModelSource& source, const PlanOptions& options) {
  if (options.quantize) return MlxFormatLabel(options.quantize->base);
  if (options.dtype) return std::string(DTypeName(*options.dtype));
  return source.quantization().is_null() ? "stored" : "stored (quantized)";
}

Status WritePart(const PackageOptions& options, std::string_view part, const ModelSource& source,
                 const PlanOptions& plan, const std::string& folder) {
  WriteOptions write;
  write.plan = plan;
  write.threads = options.threads;
  if (options.progress) {
    write.progress = [&, part](uint64_t done, uint64_t total) {
      options.progress(part, done, total);
    };
  }
  return WriteModelFolder(source, folder, write);
}

}  // namespace

Status CreatePackage(const PackageOptions& options) {
  KVASIR_TRY(const Plan plan, MakePlan(options));
  KVASIR_TRY(FolderBuilder builder, FolderBuilder::Create(options.output));
  const std::string& folder = builder.partial();
  KVASIR_TRY_OK(WritePart(options, "model", *plan.model, plan.model_options, folder));
  PackageFile package;
  package.system = options.file.system;
  package.weights = Label(*plan.model, plan.model_options);
  if (plan.draft) {
    package.draft = "draft";
    package.draft_weights = Label(*plan.draft, plan.draft_options);
    const std::string draft = folder + "/" + package.draft;
    std::error_code error;
    fs::create_directories(draft, error);
    if (error) return {ErrorCode::kIo, draft + ": " + error.message()};
    KVASIR_TRY_OK(WritePart(options, "draft", *plan.draft, plan.draft_options, draft));
  }
  if (!plan.generation.as_object().empty()) {
    KVASIR_TRY_OK(
        WriteFileAtomic(folder + "/generation_config.json", plan.generation.DumpPretty()));
  }
  if (!options.file.chat_template.empty()) {
    KVASIR_TRY_OK(WriteFileAtomic(folder + "/chat_template.jinja", options.file.chat_template));
  }
  KVASIR_TRY_OK(
      WriteFileAtomic(folder + "/" + std::string(kPackageFileName), package.ToJson().DumpPretty()));
  return builder.Commit();
}

}  // namespace kvasir
