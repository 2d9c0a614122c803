#include "kvasir/cli/model_flags.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "kvasir/base/file.h"
#include "kvasir/cli/output.h"
#include "kvasir/engine/recommended_sampling.h"

namespace kvasir {
namespace {

constexpr const char* kBundledModel = "kvasir-demo";

}  // namespace

Result<size_t> ParseBytes(const std::string& flag, const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  size_t shift = 0;
  if (error == std::errc() && rest != end) {
    const size_t unit = kUnits.find(*rest++);
    if (unit == std::string_view::npos) error = std::errc::invalid_argument;
    shift = 10 * (unit + 1);
  }
  if (error != std::errc() || rest != end || number > (uint64_t{1} << 60 >> shift)) {
    return {ErrorCode::kInvalidArgument,
            flag + " is '" + text + "', it must be bytes as in 4096, 800M or 4G"};
  }
  return static_cast<size_t>(number << shift);
}

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
  return {ErrorCode::kNotFound, "the bundled model '" + name +
                                    "' is not beside this program, in models/" + name +
                                    " or share/kvasir/models/" + name + " of a folder above " +
                                    program.string() + "; name a model with -m FOLDER"};
}

void ModelFlags::Declare(Flags& flags, const std::string& default_kv_dtype) {
  flags.Add("-m,--model", &model, "model folder or .gguf file; default: the bundled model");
  flags.Add("--weights", &weights,
            "how weights are kept: stored (as in the file), f32, f16, bf16, bf16_dot, q8, q4");
  flags.Add("--packed-weights", &packed_weights,
            "folder that keeps weights as they are packed in memory: later starts map them");
  kv.kv_dtype = default_kv_dtype;
  DeclareCache(flags);
  flags.Add("-t,--threads", &threads, "threads; 0: one per physical core");
  flags.Add("--isa", &isa,
            "instruction set: best, scalar, avx2, avx2_vnni, avx512, neon, neon_dotprod, neon_i8mm "
            "(same results)");
  flags.Add("--prefetch", &prefetch,
            "how weights and keys are read ahead: auto, l1, l2, stream (same results)");
  flags.Add("--random-weights", &random_weights, "make up weights: only config.json is needed");
}

void ModelFlags::DeclareCache(Flags& flags) {
  flags.Add("--cache-bytes", &cache_bytes,
            "upper bound of the KV cache (serve: and of activations and logits), e.g. 800M or 4G; "
            "0: half of the memory that the weights leave");
  flags.Add("--kv-dtype", &kv.kv_dtype,
            "cached keys and values, where not quantized: f32, f16, bf16");
  flags.Add("--kv-key-dtype", &kv.kv_key_dtype, "keys only; they are then not quantized");
  flags.Add("--kv-value-dtype", &kv.kv_value_dtype, "values only; they are then not quantized");
  flags.Add("--kv-bits", &kv.kv_bits,
            "bits of cached keys and values: 2, 3, 4, 5, 6, 8; turboquant: 2, 2.5, 3, 3.5, 4");
  flags.Add("--kv-key-bits", &kv.kv_key_bits, "keys only");
  flags.Add("--kv-value-bits", &kv.kv_value_bits, "values only");
  flags.Add("--kv-group-size", &kv.kv_group_size,
            "elements that share a scale: 32, 64 (default), 128");
  flags.Add("--kv-quant-scheme", &kv.kv_quant_scheme,
            "uniform (default: MLX's codes), rotated (closer to 16 bits) or turboquant");
  flags.Add(
      "--kv-attention", &kv_attention,
      "attention over keys and values of 16 bits and less: auto (default), int16, int8, float");
  flags.Add("--quantized-kv-start", &kv.quantized_kv_start,
            "positions below stay as --kv-dtype says; default: 0");
  flags.Add("--kv-recent", &kv.kv_recent,
            "the last so many tokens stay as --kv-dtype says; default: 0");
  flags.Add("--kv-dense-layers", &kv.kv_dense_layers,
            "full-attention layers that stay as --kv-dtype says: auto (default), none, or numbers "
            "as in 0,1,27");
  flags.Add("--kv-window-layers", &kv.kv_window_layers,
            "sliding-window layers: dense (default) or packed as the others");
  flags.Add("--kv-budget,--compact-kv-budget", &kv.compact_kv_budget,
            "tokens that each full-attention layer keeps; others are evicted");
  flags.Add("--kv-score", &kv.kv_score,
            "which tokens a budget keeps: keydiff (default), knorm, knorm-high, lagkv, streaming, "
            "tova, expected-attention, random");
  flags.Add("--kv-keep-first", &kv.kv_keep_first,
            "first tokens that a budget never evicts; default: 4");
  flags.Add("--kv-keep-recent", &kv.kv_keep_recent,
            "last tokens that a budget never evicts; default: 128, or what the budget leaves");
  flags.Add("--kv-compact-interval", &kv.kv_compact_interval,
            "tokens from eviction to eviction; default: 256");
  flags.Add("--kv-budget-per-layer", &kv.kv_budget_per_layer, "each layer keeps its own tokens");
  flags.Add("--kv-budget-skip-layers", &kv.kv_budget_skip_layers,
            "layers that keep every token, as in 0,1");
}

Result<BundleOptions> ModelFlags::Options() const {
  BundleOptions options;
  KVASIR_TRY_OK(CheckRange("--threads", threads, 0, kMostThreads));
  options.backend.threads = static_cast<int>(threads);
  if (isa != "best") {
    const auto named = IsaFromName(isa);
    if (!named.ok()) return WithContext(named.error(), "--isa, beside best");
    options.backend.isa = *named;
  }
  KVASIR_TRY(options.backend.prefetching, PrefetchingFromName(prefetch));
  KVASIR_TRY(options.backend.attention, AttentionMathFromName(kv_attention));
  if (weights != "stored") {
    auto format = WeightFormatFromName(weights);
    if (!format.ok()) return WithContext(format.error(), "--weights, beside stored");
    options.weight_format = *format;
  }
  KVASIR_TRY(options.kv, KvPolicy::FromFlags(kv));
  KVASIR_TRY(options.kv_budget_bytes, ParseBytes("--cache-bytes", cache_bytes));
  options.packed_weights = packed_weights;
  options.random_weights = random_weights;
  options.engine_step_tokens = engine_step_tokens;
  options.engine_streams = engine_streams;
  options.draft_bytes = draft_bytes;
  options.text_need = text_need;
  options.log = log;
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
  char size[96];
  std::snprintf(size, sizeof(size), "%.1f M parameters, %.1f MB, context %lld",
                static_cast<double>(loaded.parameters()) / 1e6,
                static_cast<double>(loaded.weight_bytes()) / 1e6,
                static_cast<long long>(loaded.context_tokens()));
  const auto say = [this](const std::string& line) { Log(log, LogLevel::kInfo, line); };
  say(bundle->name() + ": " + size + ", " + bundle->backend().Describe());
  for (const std::string& line : DescribeRounding(kv)) say(line);
  say("cache: " + bundle->DescribeCache());
  if (engine_step_tokens > 0) say("cache memory: " + bundle->budget().Describe());
  return bundle;
}

void SamplingFlags::Declare(Flags& flags) {
  flags.Add("--temp", &temperature, "temperature; 0: greedy; -1: what the model recommends");
  flags.Add("--top-k", &top_k, "keep the k likeliest tokens; 0: off; -1: recommended");
  flags.Add("--top-p", &top_p, "keep the likeliest tokens of this mass; 1: off; -1: recommended");
  flags.Add("--min-p", &min_p,
            "keep tokens at least this times as likely as the best; 0: off; -1: recommended");
  flags.Add("--seed", &seed,
            "seed; the same seed gives the same answer, so two runs without one do");
}

Status SamplingFlags::Check() const {
  struct Range {
    const char* flag;
    double value;
    double least;
    double most;
    const char* text;
  };
  for (const Range& range :
       {Range{"--temp", temperature, 0, std::numeric_limits<double>::max(), "0 or more"},
        Range{"--top-k", static_cast<double>(top_k), 0, 1e19, "0 or more"},
        Range{"--top-p", top_p, 0, 1, "0 to 1"}, Range{"--min-p", min_p, 0, 1, "0 to 1"}}) {
    if (range.value == -1 || (range.value >= range.least && range.value <= range.most)) continue;
    return {ErrorCode::kInvalidArgument, std::string(range.flag) + " must be " + range.text +
                                             ", or -1 for what the model recommends"};
  }
  return {};
}

SamplingOptions SamplingFlags::Resolve(const GenerationConfig& recommended) const {
  SamplingOptions options = RecommendedSampling(recommended, 0.0);
  if (temperature != -1) options.temperature = temperature;
  if (top_k != -1) options.top_k = top_k;
  if (top_p != -1) options.top_p = top_p;
  // As in requests: nothing but the likeliest token.
  if (options.top_p == 0) options.top_p = std::numeric_limits<double>::min();
  if (min_p != -1) options.min_p = min_p;
  options.seed = seed;
  return options;
}

}  // namespace kvasir
