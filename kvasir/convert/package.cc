#include "kvasir/convert/package.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "kvasir/base/file.h"
#include "kvasir/convert/conversion_notes.h"
#include "kvasir/convert/convert_model.h"
#include "kvasir/convert/folder_builder.h"
#include "kvasir/convert/package_chat.h"
#include "kvasir/convert/package_draft.h"
#include "kvasir/formats/generation_config.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/formats/stop_texts.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDraftFolder = "draft";

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
      if (value != std::floor(value)) {
        return {ErrorCode::kInvalidArgument,
                "PARAMETER top_k is '" + text.substr(0, 40) + "', it must be a whole number"};
      }
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

// The ids that end an answer of `source`, as loading it would find them.
Result<std::vector<Token>> StopTokens(const ModelSource& source, const Json& generation) {
  const Json* const text = source.config().Find("text_config");
  for (const Json* const json : {&generation, text, &source.config()}) {
    const Json* const ids = json == nullptr ? nullptr : json->Find("eos_token_id");
    if (ids == nullptr || ids->is_null()) continue;
    auto read = ReadTokenIds(*json, "eos_token_id");
    if (!read.ok()) return WithContext(read.error(), source.path());
    if (!read->empty()) return read;
  }
  return std::vector<Token>();
}

// Naming ends in generation_config.json says that these are all, so that those are named as well
// which loading finds where it names none: what the chat template writes.
Status AddTurnEnds(const ModelSource& source, const Tokenizer& tokenizer,
                   const std::string& chat_template, std::vector<Token>* ids) {
  KVASIR_TRY(const std::string text, PackageTemplate(source, chat_template));
  for (const std::string_view stop : StopTextsIn(text)) {
    const auto id = tokenizer.TokenToId(stop);
    if (!id || !tokenizer.IsSpecial(*id)) continue;
    if (std::find(ids->begin(), ids->end(), *id) == ids->end()) ids->push_back(*id);
  }
  return {};
}

// generation_config.json of the package: the model's own with the PARAMETER lines on top.
Result<Json> Generation(const ModelSource& source, const Modelfile& file) {
  Json generation = Json::Object();
  if (const SourceFile* own = source.FindFile("generation_config.json")) {
    auto parsed = Json::Parse(own->contents);
    if (!parsed.ok()) return WithContext(parsed.error(), source.path() + "/generation_config.json");
    if (parsed->is_object()) generation = *std::move(parsed);
  }
  std::unique_ptr<const Tokenizer> tokenizer;
  for (const auto& [name, text, line] : file.parameters) {
    const auto wrong = [line = line](const Error& error) {
      if (line == 0) return error;
      return WithContext(error, "the Modelfile, line " + std::to_string(line));
    };
    if (name != "stop") {
      const Status applied = Apply(name, text, &generation);
      if (!applied.ok()) return wrong(applied.error());
      continue;
    }
    if (tokenizer == nullptr) {
      KVASIR_TRY(tokenizer, TokenizerOf(source));
    }
    const auto token = tokenizer == nullptr ? std::nullopt : tokenizer->TokenToId(text);
    if (!token) {
      return wrong({ErrorCode::kInvalidArgument,
                    "PARAMETER stop '" + text.substr(0, 40) +
                        "' is no single token of the model; longer stops are given with each "
                        "request"});
    }
    KVASIR_TRY(std::vector<Token> ids, StopTokens(source, generation));
    if (generation.Find("eos_token_id") == nullptr) {
      KVASIR_TRY_OK(AddTurnEnds(source, *tokenizer, file.chat_template, &ids));
    }
    if (std::find(ids.begin(), ids.end(), *token) == ids.end()) ids.push_back(*token);
    Json stops = Json::Array();
    for (const Token id : ids) stops.Append(static_cast<int64_t>(id));
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
  PackageFile package;
};

std::string Resolved(const PackageOptions& options, const std::string& path) {
  return (fs::path(options.base) / path).string();
}

std::string Label(const ModelSource& source, const PlanOptions& options, const PackageFile& own) {
  if (options.quantize) return MlxFormatLabel(options.quantize->base);
  if (options.dtype) return std::string(DTypeName(*options.dtype));
  if (!own.weights.empty()) return own.weights;
  if (source.is_quantized()) return "stored (quantized)";
  return HasQuantizedTensors(source) ? "f16" : "stored";
}

// What FROM says when it is a package itself; nothing otherwise.
Result<PackageFile> PackageOf(const std::string& path) {
  return DirectoryExists(path) ? PackageFile::Load(path) : Result<PackageFile>(PackageFile());
}

Result<Plan> MakePlan(const PackageOptions& options) {
  Modelfile file = options.file;
  const std::string from = Resolved(options, file.from);
  KVASIR_TRY(const PackageFile inherited, PackageOf(from));
  const bool inherits_draft = file.draft.empty() && !inherited.draft.empty();
  if (inherits_draft) file.draft = (fs::path(file.from) / inherited.draft).string();
  if (file.draft.empty() && !options.quantize_draft.empty()) {
    return {ErrorCode::kInvalidArgument,
            "--quantize-draft says how to quantize a draft, and there is none; add --draft"};
  }
  Plan plan;
  plan.package.system = file.system.value_or(inherited.system);
  if (!file.draft.empty()) {
    KVASIR_TRY_OK(CheckDraftIsAnother(from, Resolved(options, file.draft)));
  }
  KVASIR_TRY(plan.model, ModelSource::Open(from));
  const auto type = [](const std::string& name) { return name.empty() ? "stored" : name; };
  KVASIR_TRY(plan.model_options, PlanFor(*plan.model, type(options.quantize), 0));
  KVASIR_TRY_OK(CheckRuns(*plan.model));
  plan.package.weights = Label(*plan.model, plan.model_options, inherited);
  KVASIR_TRY(plan.generation, Generation(*plan.model, file));
  KVASIR_TRY_OK(CheckPackageChat(*plan.model, file.chat_template, plan.package.system));
  if (file.draft.empty()) return plan;
  KVASIR_TRY(plan.draft, ModelSource::Open(Resolved(options, file.draft)));
  KVASIR_TRY_OK(CheckDraftVocabulary(*plan.model, *plan.draft));
  KVASIR_TRY_OK(CheckRuns(*plan.draft));
  KVASIR_TRY(plan.draft_options, PlanFor(*plan.draft, type(options.quantize_draft), 0));
  if (plan.draft_options.quantize) plan.draft_options.quantize->is_draft = true;
  KVASIR_TRY(PackageFile own, PackageOf(plan.draft->path()));
  if (inherits_draft) own.weights = inherited.draft_weights;
  plan.package.draft = kDraftFolder;
  plan.package.draft_weights = Label(*plan.draft, plan.draft_options, own);
  return plan;
}

Status WritePart(const PackageOptions& options, std::string_view part, const ModelSource& source,
                 const PlanOptions& plan, const std::string& folder,
                 const std::string& kept_folder) {
  WriteOptions write;
  write.plan = plan;
  write.threads = options.threads;
  write.kept_folder = kept_folder;
  if (options.progress) {
    write.progress = [&, part](uint64_t done, uint64_t total) {
      options.progress(part, done, total);
    };
  }
  return WriteModelFolder(source, folder, write);
}

void LogNotes(const PackageOptions& options, const ModelSource& source, const PlanOptions& plan) {
  const bool is_stored = !plan.dtype && !plan.quantize;
  for (const std::string& note :
       ConversionNotes(source, {.is_gguf = false, .is_stored = is_stored})) {
    Log(options.log, LogLevel::kWarning, note);
  }
}

Status WriteParts(const PackageOptions& options, const Plan& plan, const std::string& folder) {
  KVASIR_TRY_OK(WritePart(options, "model", *plan.model, plan.model_options, folder,
                          plan.draft ? kDraftFolder : ""));
  if (plan.draft) {
    const std::string draft = folder + "/" + kDraftFolder;
    std::error_code error;
    fs::create_directories(draft, error);
    if (error) return {ErrorCode::kIo, draft + ": " + error.message()};
    KVASIR_TRY_OK(WritePart(options, "draft", *plan.draft, plan.draft_options, draft, ""));
  }
  if (!plan.generation.as_object().empty()) {
    KVASIR_TRY_OK(
        WriteFileAtomic(folder + "/generation_config.json", plan.generation.DumpPretty()));
  }
  if (!options.file.chat_template.empty()) {
    // It stands for requests with tools as well.
    std::error_code error;
    fs::remove_all(folder + "/additional_chat_templates", error);
    KVASIR_TRY_OK(WriteFileAtomic(folder + "/chat_template.jinja", options.file.chat_template));
  }
  return WriteFileAtomic(folder + "/" + std::string(kPackageFileName),
                         plan.package.ToJson().DumpPretty());
}

}  // namespace

Status CreatePackage(const PackageOptions& options) {
  KVASIR_TRY(const Plan plan, MakePlan(options));
  KVASIR_TRY(FolderBuilder builder, FolderBuilder::Create(options.output));
  KVASIR_TRY_OK(builder.CheckIsOutside(plan.model->path()));
  if (plan.draft) KVASIR_TRY_OK(builder.CheckIsOutside(plan.draft->path()));
  LogNotes(options, *plan.model, plan.model_options);
  if (plan.draft) LogNotes(options, *plan.draft, plan.draft_options);
  return builder.Finish(WriteParts(options, plan, builder.partial()));
}

}  // namespace kvasir
