// kvasir inspect: what a model folder holds and what it needs, or what a cache file holds, without
// loading either.
// Deliberately only reads headers and checksums.
#include <map>
#include <optional>
#include <system_error>

#include "kvasir/base/file.h"
#include "kvasir/cli/commands.h"
#include "kvasir/cli/inspect_cache.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/output_file.h"
#include "kvasir/cli/printable.h"
#include "kvasir/engine/model_text.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/kv/kv_policy.h"
#include "kvasir/model/families.h"
#include "kvasir/model/model_loader.h"
#include "kvasir/model/tensor_list.h"

namespace kvasir {
namespace {

// Cache settings that people choose between, as flags would ask for them.
struct CacheSetting {
  const char* name;
  const char* bits;    // --kv-bits
  const char* scheme;  // --kv-quant-scheme
  const char* dtype;   // --kv-dtype
};
constexpr CacheSetting kCacheSettings[] = {
    {"f32", "", "", "f32"},
    {"f16", "", "", "f16"},
    {"8 bit", "8", "", "f16"},
    {"4 bit", "4", "", "f16"},
    {"turboquant 4 bit", "4", "turboquant", "f16"},
    {"turboquant 3 bit", "3", "turboquant", "f16"},
};

// Nothing where the model's shape does not take the setting.
std::optional<KvCacheSpec> SpecOf(const ModelConfig& config, const CacheSetting& setting) {
  KvPolicyFlags flags;
  flags.kv_bits = setting.bits;
  flags.kv_quant_scheme = setting.scheme;
  flags.kv_dtype = setting.dtype;
  const auto policy = KvPolicy::FromFlags(flags);
  if (!policy.ok()) return std::nullopt;
  auto spec =
      policy->Apply(DecoderCacheSpec(MakeDecoderSpec(config), {}), config.num_attention_heads);
  if (!spec.ok() || !spec->Validate().ok()) return std::nullopt;
  return *std::move(spec);
}

class InspectCommand final : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string help() const override {
    return "say what a model folder or a cache file holds and needs";
  }

  void Declare(Flags& flags) override {
    flags.Add(
        "model,-m,--model", &model_.model,
        "model folder, .gguf file, KV snapshot or mlx-lm prompt cache; default: the bundled model");
    flags.Add("--context", &context_, "of a model: tokens to compute memory for; 0: its context");
    flags.Add("--tensors", &lists_tensors_, "of a model: list every tensor");
    flags.Add("--svg", &svg_path_, "of a cache: draw its blocks into this file");
    flags.Add("--json", &is_json_, "print one JSON object");
  }

  Status Run() override {
    if (IsCacheFile(model_.model)) return RunCache();
    if (!svg_path_.empty()) {
      return {ErrorCode::kInvalidArgument,
              "--svg draws the blocks of a cache; give a KV snapshot or an mlx-lm prompt cache"};
    }
    KVASIR_TRY(const std::string folder, model_.Folder());
    if (AssistantConfig::IsIn(folder)) return RunAssistant(folder);
    const auto config = LoadModelConfig(folder);
    Json report = Json::Object{{"folder", folder}, {"kind", KindOf(folder)}};
    Status verdict = config.status();
    if (config.ok()) {
      KVASIR_TRY_OK(CheckRange("--context", context_, 0, config->max_position_embeddings));
      Describe(*config, &report);
    } else if (verdict.error().code != ErrorCode::kUnsupported) {
      return verdict;
    }
    KVASIR_TRY_OK(AddWeights(folder, config.ok() ? &*config : nullptr, &report, &verdict));
    if (config.ok()) AddText(folder, *config, &report, &verdict);
    if (config.ok()) AddCache(*config, &report);
    report.Set("runs", verdict.ok());
    if (!verdict.ok()) report.Set("reason", verdict.error().message);
    KVASIR_TRY_OK(is_json_ ? PrintJson(report) : PrintText(report));
    return verdict;
  }

 private:
  static std::string KindOf(const std::string& folder) {
    if (IsGguf(folder)) return "GGUF file";
    const auto config = Json::ParseFile(folder + "/config.json", kMostTextBytes);
    const auto package = PackageFile::Load(folder);
    std::string kind = "safetensors folder";
    const auto quantization = config.ok() && config->is_object()
                                  ? CheckpointQuantization::OfConfig(*config)
                                  : CheckpointQuantization();
    if (quantization.ok() && quantization->mlx) kind = "MLX-quantized folder";
    if (quantization.ok() && quantization->hf) {
      kind = "folder quantized by " + quantization->hf->method;
    }
    if (package.ok() && !package->weights.empty()) kind += ", packaged as " + package->weights;
    if (package.ok() && !package->draft.empty()) kind += " with a draft";
    return kind;
  }

  // `config` is null when it cannot be read.
  Status AddWeights(const std::string& folder, const ModelConfig* config, Json* report,
                    Status* verdict) const {
    if (IsGguf(folder)) return AddGgufTensors(folder, config, report, verdict);
    // Weights may be absent: a config alone can be measured with --random-weights.
    if (Checkpoint::WeightFiles(folder).empty()) {
      report->Set("weights", "none");
      return {};
    }
    Result<Checkpoint> checkpoint = Checkpoint::Open(folder);
    if (!checkpoint.ok() && checkpoint.error().code == ErrorCode::kNotFound) {
      if (verdict->ok()) *verdict = checkpoint.status();
      return {};
    }
    if (!checkpoint.ok()) return checkpoint.status();
    AddTensors(*checkpoint, report);
    if (config != nullptr) AddMemory(ListTensors(*checkpoint, *config), report, verdict);
    return {};
  }

  static void AddText(const std::string& folder, const ModelConfig& config, Json* report,
                      Status* verdict) {
    const auto text = ModelText::Load(folder, config);
    if (!text.ok() && verdict->ok()) *verdict = text.status();
    if (!text.ok()) return;
    report->Set("tokenizer", text->tokenizer != nullptr);
    report->Set("chat_template", text->chat.has_value());
  }

  Status RunCache() const {
    if (context_ != 0 || lists_tensors_) {
      return {ErrorCode::kInvalidArgument,
              "--context and --tensors are for models; " + model_.model + " is a cache"};
    }
    if (!svg_path_.empty()) KVASIR_TRY_OK(CheckMayWrite(svg_path_, "<svg", "picture of a cache"));
    KVASIR_TRY(CacheReport report,
               DescribeCache(model_.model,
                             svg_path_.empty() ? BlockMapPicture::kNone : BlockMapPicture::kSvg));
    if (!svg_path_.empty()) KVASIR_TRY_OK(WriteFileAtomic(svg_path_, report.svg));
    KVASIR_TRY_OK(is_json_ ? PrintJson(report.json) : Print(report.text));
    return std::move(report.damage);
  }

  Status RunAssistant(const std::string& folder) const {
    KVASIR_TRY(const AssistantConfig config, AssistantConfig::Load(folder));
    Json report =
        Json::Object{{"folder", folder}, {"kind", "assistant: drafts for a model (--draft-model)"}};
    Describe(config.text, &report);
    report.Set("parameters", config.ParameterCount());
    report.Set("target_hidden_size", config.target_hidden_size);
    if (config.has_ordered_head) {
      report.Set("head", "of " + std::to_string(config.clusters_looked) + " of " +
                             std::to_string(config.clusters) + " clusters of tokens");
    }
    Status verdict;
    KVASIR_TRY_OK(AddWeights(folder, nullptr, &report, &verdict));
    if (!verdict.ok()) report.Set("reason", verdict.error().message);
    KVASIR_TRY_OK(is_json_ ? PrintJson(report) : PrintText(report));
    return verdict;
  }

  // Of one sequence, whatever its length.
  static int64_t StateBytes(const ModelConfig& config) {
    size_t bytes = 0;
    for (const auto& layer : DecoderCacheSpec(MakeDecoderSpec(config), KvCodec()).layers) {
      bytes += layer.state_bytes;
    }
    return static_cast<int64_t>(bytes);
  }

  void Describe(const ModelConfig& config, Json* report) const {
    int64_t window_layers = 0;
    int64_t recurrent_layers = 0;
    for (const LayerKind kind : config.layer_kinds) {
      window_layers += kind == LayerKind::kSliding;
      recurrent_layers += kind == LayerKind::kRecurrent;
    }
    report->Set("architecture", config.architecture);
    report->Set("family", ModelFamilyName(config.family));
    report->Set("parameters", config.ParameterCount());
    report->Set("layers", config.num_hidden_layers);
    report->Set("window_layers", window_layers);
    report->Set("window_tokens", config.sliding_window);
    if (recurrent_layers > 0) {
      report->Set("recurrent_layers", recurrent_layers);
      report->Set("state_bytes", StateBytes(config));
    }
    report->Set("hidden_size", config.hidden_size);
    report->Set("query_heads", config.num_attention_heads);
    report->Set("kv_heads", config.num_key_value_heads);
    report->Set("head_dim", config.head_dim);
    report->Set("vocab_size", config.vocab_size);
    report->Set("context_tokens", config.max_position_embeddings);
  }

  void AddCache(const ModelConfig& config, Json* report) const {
    const int64_t context = context_ == 0 ? config.max_position_embeddings : context_;
    const Json* const weights = report->Find("weight_bytes_in_memory");
    Json cache;
    for (const CacheSetting& setting : kCacheSettings) {
      const auto spec = SpecOf(config, setting);
      if (!spec) continue;
      const auto bytes = static_cast<int64_t>(spec->BytesAt(context));
      Json entry;
      entry.Set("bytes_per_token", static_cast<uint64_t>(spec->TokenBytes()));
      entry.Set("bytes_at_context", bytes);
      if (weights != nullptr) entry.Set("bytes_with_weights", bytes + weights->as_int());
      cache.Set(setting.name, std::move(entry));
    }
    report->Set("kv_context_tokens", context);
    report->Set("kv_cache", std::move(cache));
  }

  void AddTensors(const Checkpoint& checkpoint, Json* report) const {
    std::map<std::string, int64_t> types;
    Json tensors = Json::Array();
    for (const std::string& name : checkpoint.names()) {
      const TensorView& tensor = *checkpoint.Find(name);
      ++types[std::string(DTypeName(tensor.dtype))];
      if (lists_tensors_) {
        tensors.Append(name + " " + std::string(DTypeName(tensor.dtype)) + " " +
                       ShapeString(tensor.shape));
      }
    }
    Json counts = Json::Object();
    for (const auto& [type, count] : types) counts.Set(type, count);
    report->Set("weight_files", static_cast<uint64_t>(checkpoint.files().size()));
    report->Set("weight_bytes", checkpoint.total_bytes());
    report->Set("tensor_types", std::move(counts));
    if (lists_tensors_) report->Set("tensors", std::move(tensors));
  }

  // Every tensor of the decoder is there and can be read, or the verdict says which is not.
  static void AddMemory(const Result<TensorList>& list, Json* report, Status* verdict) {
    if (list.ok()) {
      std::map<std::string, int64_t> formats;
      for (const ListedTensor& tensor : list->tensors) {
        const bool is_matrix = tensor.rows.shape.size() > 1;
        if (is_matrix) ++formats[std::string(WeightFormatName(FormatInMemory(tensor)))];
      }
      Json counts = Json::Object();
      for (const auto& [format, count] : formats) counts.Set(format, count);
      report->Set("matrices_in_memory", std::move(counts));
      report->Set("weight_bytes_in_memory", PackedBytes(list->tensors));
      if (list->has_mtp_head) report->Set("drafts", "a layer of its own (--draft-kind mtp)");
      Json unread = Json::Array();
      for (const std::string& name : list->unread) unread.Append(name);
      if (!list->unread.empty()) report->Set("unread_tensors", std::move(unread));
    } else if (verdict->ok()) {
      *verdict = list.status();
    }
  }

  Status AddGgufTensors(const std::string& path, const ModelConfig* config, Json* report,
                        Status* verdict) const {
    KVASIR_TRY(const GgufFile file, GgufFile::Open(path));
    std::map<std::string, int64_t> types;
    Json tensors = Json::Array();
    for (const std::string& name : file.names()) {
      const GgufEntry& entry = *file.Find(name);
      const std::string type(entry.type->name);
      ++types[type];
      if (lists_tensors_) tensors.Append(name + " " + type + " " + ShapeString(entry.shape));
    }
    Json counts = Json::Object();
    for (const auto& [type, count] : types) counts.Set(type, count);
    report->Set("weight_files", static_cast<uint64_t>(file.part_count()));
    report->Set("weight_bytes", file.total_bytes());
    if (config != nullptr) AddMemory(ListTensors(file, *config), report, verdict);
    report->Set("tensor_types", std::move(counts));
    if (lists_tensors_) report->Set("tensors", std::move(tensors));
    return {};
  }

  static Status PrintText(const Json& report) {
    std::string out;
    for (const auto& [key, value] : report.as_object()) {
      if (key == "kv_cache") {
        for (const auto& [codec, entry] : value.as_object()) {
          out += "kv cache " + codec + ": " +
                 FormatBytes(static_cast<size_t>(entry.Find("bytes_per_token")->as_int())) +
                 " a token, " +
                 FormatBytes(static_cast<size_t>(entry.Find("bytes_at_context")->as_int())) +
                 " at the context above";
          const Json* const all = entry.Find("bytes_with_weights");
          if (all != nullptr) {
            out += ", with the weights " + FormatBytes(static_cast<size_t>(all->as_int()));
          }
          out += "\n";
        }
      } else if (value.is_array()) {
        if (key != "tensors") out += key + ":\n";
        for (const Json& line : value.as_array()) out += "  " + line.as_string() + "\n";
      } else {
        out += key + ": " + (value.is_string() ? value.as_string() : value.Dump()) + "\n";
      }
    }
    return Print(Printable(std::move(out)));
  }

  ModelFlags model_;
  int64_t context_ = 0;
  bool lists_tensors_ = false;
  std::string svg_path_;
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace kvasir
