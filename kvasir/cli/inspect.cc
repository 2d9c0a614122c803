// kvasir inspect: what a model folder holds and what it needs, or what a cache file holds, without
// loading either.
// Deliberately only reads headers and checksums.
#include <cstdio>
#include <map>

#include "kvasir/base/file.h"
#include "kvasir/cli/commands.h"
#include "kvasir/cli/inspect_cache.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/model/model_loader.h"

namespace kvasir {
namespace {

// The cache's shape, as the decoder would ask for it.
KvCacheSpec CacheSpecOf(const ModelConfig& config, KvCodec codec) {
  KvCacheSpec spec;
  for (const LayerKind kind : config.layer_kinds) {
    spec.layers.push_back(
        {.layout = {config.num_key_value_heads, config.head_dim, config.head_dim, codec, codec},
         .retention = kind == LayerKind::kSliding ? RetentionSpec::Window(config.sliding_window)
                                                  : RetentionSpec::All()});
  }
  return spec;
}

class InspectCommand final : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string help() const override {
    return "say what a model folder or a cache file holds and needs";
  }

  void Declare(Flags& flags) override {
    flags.Add(
        "model", &model_.model,
        "model folder, .gguf file, KV snapshot or mlx-lm prompt cache; default: the bundled model");
    flags.Add("--context", &context_, "tokens to compute memory for; 0: the model's context");
    flags.Add("--tensors", &lists_tensors_, "list every tensor");
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
    KVASIR_TRY(const ModelConfig config, LoadModelConfig(folder));
    if (context_ < 0 || context_ > config.max_position_embeddings) {
      return {ErrorCode::kInvalidArgument, "--context must be at most the model's " +
                                               std::to_string(config.max_position_embeddings)};
    }
    Json report = Describe(folder, config);
    if (IsGgufPath(folder)) {
      KVASIR_TRY_OK(AddGgufTensors(folder, &report));
      return is_json_ ? PrintJson(report) : PrintText(report);
    }
    // Weights may be absent: a config alone can be measured with --random-weights.
    const auto checkpoint = Checkpoint::Open(folder);
    if (!checkpoint.ok() && checkpoint.error().code != ErrorCode::kNotFound) {
      return checkpoint.error();
    }
    if (checkpoint.ok()) AddTensors(*checkpoint, &report);
    report.Set("tokenizer", FileExists(folder + "/tokenizer.json"));
    return is_json_ ? PrintJson(report) : PrintText(report);
  }

 private:
  Status RunCache() const {
    KVASIR_TRY(CacheReport report,
               DescribeCache(model_.model,
                             svg_path_.empty() ? BlockMapPicture::kNone : BlockMapPicture::kSvg));
    if (!svg_path_.empty()) KVASIR_TRY_OK(WriteFileAtomic(svg_path_, report.svg));
    KVASIR_TRY_OK(is_json_ ? PrintJson(report.json) : Print(report.text));
    return std::move(report.damage);
  }

  Json Describe(const std::string& folder, const ModelConfig& config) const {
    const int64_t context = context_ == 0 ? config.max_position_embeddings : context_;
    int64_t window_layers = 0;
    for (const LayerKind kind : config.layer_kinds) window_layers += kind == LayerKind::kSliding;
    Json report;
    report.Set("folder", folder);
    report.Set("architecture", config.architecture);
    report.Set("family", ModelFamilyName(config.family));
    report.Set("parameters", config.ParameterCount());
    report.Set("layers", config.num_hidden_layers);
    report.Set("window_layers", window_layers);
    report.Set("window_tokens", config.sliding_window);
    report.Set("hidden_size", config.hidden_size);
    report.Set("query_heads", config.num_attention_heads);
    report.Set("kv_heads", config.num_key_value_heads);
    report.Set("head_dim", config.head_dim);
    report.Set("vocab_size", config.vocab_size);
    report.Set("context_tokens", config.max_position_embeddings);
    Json cache;
    for (const auto kind : {KvCodec::Kind::kF32, KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
      const KvCacheSpec spec = CacheSpecOf(config, {kind});
      Json entry;
      entry.Set("bytes_per_token", static_cast<uint64_t>(spec.TokenBytes()));
      entry.Set("bytes_at_context", static_cast<uint64_t>(spec.BytesAt(context)));
      cache.Set(KvCodec{kind}.name(), std::move(entry));
    }
    report.Set("kv_context_tokens", context);
    report.Set("kv_cache", std::move(cache));
    return report;
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

  Status AddGgufTensors(const std::string& path, Json* report) const {
    KVASIR_TRY(const GgufFile file, GgufFile::Open(path));
    std::map<std::string, int64_t> types;
    Json tensors = Json::Array();
    bool is_readable = true;
    for (const std::string& name : file.names()) {
      const GgufEntry& entry = *file.Find(name);
      const std::string type(entry.type->name);
      ++types[type];
      is_readable = is_readable && entry.type->decode != nullptr;
      if (lists_tensors_) tensors.Append(name + " " + type + " " + ShapeString(entry.shape));
    }
    Json counts = Json::Object();
    for (const auto& [type, count] : types) counts.Set(type, count);
    report->Set("weight_files", static_cast<uint64_t>(file.part_count()));
    report->Set("weight_bytes", file.total_bytes());
    report->Set("tensor_types", std::move(counts));
    report->Set("all_types_readable", is_readable);
    if (lists_tensors_) report->Set("tensors", std::move(tensors));
    report->Set("tokenizer", GgufTokenizerJson(file.metadata()).ok());
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
                 " at the context above\n";
        }
      } else if (value.is_array()) {
        for (const Json& line : value.as_array()) out += "  " + line.as_string() + "\n";
      } else {
        out += key + ": " + (value.is_string() ? value.as_string() : value.Dump()) + "\n";
      }
    }
    return Print(out);
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
