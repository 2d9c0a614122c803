#include "kvasir/cli/model_flags.h"

#include <cstdio>
#include <filesystem>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

constexpr const char* kBundledModel = "kvasir-demo";

void LogToStderr(LogLevel level, std::string_view line) {
  const char* prefix = level == LogLevel::kWarning ? "warning: "
                       : level == LogLevel::kError ? "error: "
                                                   : "";
  std::fprintf(stderr, "%s%.*s\n", prefix, static_cast<int>(line.size()), line.data());
}

}  // namespace

Result<std::string> BundledModel(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (fs::path folder = program.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    for (const fs::path& candidate :
         {folder / "models" / name, folder / "share" / "kvasir" / "models" / name}) {
      if (FileExists((candidate / "config.json").string())) return candidate.string();
    }
    if (folder == folder.parent_path()) break;
  }
  return {ErrorCode::kNotFound,
          "the bundled model '" + name + "' is not beside this program; name one with -m FOLDER"};
}

void ModelFlags::Declare(Flags& flags) {
  flags.Add("-m,--model", &model, "model folder; default: the bundled model");
  flags.Add("--weights", &weights,
            "how weights are kept: stored (as in the file), f32, f16, bf16, q8, q4");
  flags.Add("--kv-dtype", &kv_dtype, "how keys and values are cached: f32, f16, bf16");
  flags.Add("--kv-key-dtype", &kv_key_dtype, "keys only; default: --kv-dtype");
  flags.Add("--kv-value-dtype", &kv_value_dtype, "values only; default: --kv-dtype");
  flags.Add("--kv-budget", &kv_budget_mib,
            "upper bound of the KV cache in MiB; 0: half of the available memory");
  flags.Add("-t,--threads", &threads, "threads; 0: one per core");
  flags.Add("--isa", &isa, "instruction set: best, scalar, avx2, avx512, neon (same results)");
  flags.Add("--random-weights", &random_weights, "make up weights: only config.json is needed");
}

Result<BundleOptions> ModelFlags::Options() const {
  BundleOptions options;
  if (threads < 0 || threads > 1024) {
    return {ErrorCode::kInvalidArgument, "--threads must be 0 to 1024"};
  }
  options.backend.threads = static_cast<int>(threads);
  if (isa != "best") {
    KVASIR_TRY(options.backend.isa, IsaFromName(isa));
  }
  if (weights != "stored") {
    KVASIR_TRY(options.weight_format, WeightFormatFromName(weights));
  }
  KVASIR_TRY(options.kv.keys, KvCodec::FromName(kv_key_dtype.empty() ? kv_dtype : kv_key_dtype));
  KVASIR_TRY(options.kv.values,
             KvCodec::FromName(kv_value_dtype.empty() ? kv_dtype : kv_value_dtype));
  if (kv_budget_mib < 0 || kv_budget_mib > (int64_t{1} << 30)) {
    return {ErrorCode::kInvalidArgument, "--kv-budget must be 0 to 2^30 MiB"};
  }
  options.kv_budget_bytes = static_cast<size_t>(kv_budget_mib) << 20;
  options.random_weights = random_weights;
  options.log = LogToStderr;
  return options;
}

Result<std::string> ModelFlags::Folder() const {
  return model.empty() ? BundledModel(kBundledModel) : Result<std::string>(model);
}

Result<std::unique_ptr<ModelBundle>> ModelFlags::Load() const {
  KVASIR_TRY(const BundleOptions options, Options());
  KVASIR_TRY(const std::string folder, Folder());
  KVASIR_TRY(auto bundle, ModelBundle::Load(folder, options));
  const Model& loaded = bundle->model();
  std::fprintf(stderr, "%s: %.1f M parameters, %.1f MB, context %lld, %s\n", bundle->name().c_str(),
               static_cast<double>(loaded.parameters()) / 1e6,
               static_cast<double>(loaded.weight_bytes()) / 1e6,
               static_cast<long long>(loaded.context_tokens()),
               bundle->backend().Describe().c_str());
  return bundle;
}

void SamplingFlags::Declare(Flags& flags) {
  flags.Add("--temp", &temperature, "temperature; 0: greedy; -1: what the model recommends");
  flags.Add("--top-k", &top_k, "keep the k likeliest tokens; 0: off; -1: recommended");
  flags.Add("--top-p", &top_p, "keep the likeliest tokens of this mass; 1: off; -1: recommended");
  flags.Add("--min-p", &min_p,
            "keep tokens at least this times as likely as the best; 0: off; -1: recommended");
  flags.Add("--seed", &seed, "seed; the same seed gives the same answer");
}

SamplingOptions SamplingFlags::Resolve(const GenerationConfig& recommended) const {
  SamplingOptions options;
  const bool recommends_sampling = recommended.do_sample.value_or(true);
  options.temperature = temperature >= 0
                            ? temperature
                            : (recommends_sampling ? recommended.temperature.value_or(0) : 0);
  options.top_k = top_k >= 0 ? top_k : recommended.top_k.value_or(0);
  options.top_p = top_p >= 0 ? top_p : recommended.top_p.value_or(1);
  options.min_p = min_p >= 0 ? min_p : recommended.min_p.value_or(0);
  options.repetition_penalty = recommended.repetition_penalty.value_or(1);
  options.seed = seed;
  return options;
}

}  // namespace kvasir
