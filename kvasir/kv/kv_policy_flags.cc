#include "kvasir/kv/kv_policy_flags.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "kvasir/kv/kv_policy.h"

namespace kvasir {
namespace {

constexpr int64_t kDefaultGroup = 64;  // MLX's
constexpr int64_t kDefaultKeepFirst = 4;
constexpr int64_t kDefaultKeepRecent = 128;
// A compaction costs about as much as a few decoded tokens: over 256 it disappears.
constexpr int64_t kDefaultInterval = 256;
// The best at small budgets of those that need neither queries nor position order (RULER-4k).
constexpr RowScore kDefaultScore = RowScore::kKeyDiff;

Error Invalid(const std::string& sentence) { return {ErrorCode::kInvalidArgument, sentence}; }

// Bits times two, so that 3.5 is 7; -1 if `text` is not a number that ends in .5 or nothing.
int HalfBits(std::string_view text) {
  const bool half = text.ends_with(".5");
  if (half) text.remove_suffix(2);
  if (text.ends_with(".0")) text.remove_suffix(2);
  int bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
  if (error != std::errc() || end != text.data() + text.size()) return -1;
  return bits < 1 || bits > 32 ? -1 : 2 * bits + (half ? 1 : 0);
}

enum class Scheme { kUniform, kRotated, kTurbo };

Result<Scheme> ParseScheme(const std::string& name) {
  if (name.empty() || name == "uniform") return Scheme::kUniform;
  if (name == "rotated") return Scheme::kRotated;
  if (name == "turboquant") return Scheme::kTurbo;
  return Invalid("--kv-quant-scheme " + name + " is unknown; use uniform, rotated or turboquant");
}

Result<KvCodec> ParseDense(const char* flag, const std::string& name) {
  if (name.empty()) return KvCodec{};
  for (const KvCodec::Kind kind :
       {KvCodec::Kind::kF32, KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
    if (KvCodec{kind}.name() == name) return KvCodec{kind};
  }
  return Invalid(std::string(flag) + " " + name + " is no dense type; use f32, f16 or bf16");
}

// What packs a tensor at `half_bits` / 2 bits, which must be whole here.
Result<KvCodec> PackedCodec(const std::string& given, int half_bits, Scheme scheme, int64_t group) {
  const int bits = half_bits / 2;
  if (scheme == Scheme::kTurbo) {
    if (bits >= 2 && bits <= 4) return KvCodec::Turbo(bits);
    return Invalid(given +
                   ": turboquant has 2, 2.5, 3, 3.5 and 4 bits; for more use "
                   "--kv-quant-scheme uniform");
  }
  if ((bits >= 2 && bits <= 6) || bits == 8) {
    return KvCodec::Affine(bits, static_cast<int>(group), KvCodec::Scales::kF16,
                           scheme == Scheme::kRotated);
  }
  return Invalid(given +
                 ": uniform quantization has 2, 3, 4, 5, 6 and 8 bits; to quantize nothing "
                 "leave the flag out");
}

// How one of keys and values is stored.
struct TensorFlags {
  const char* bits_flag;
  const std::string& bits;  // of this tensor alone
  const char* dtype_flag;
  const std::string& dtype;
  bool round_up;  // fractional --kv-bits
};

struct Quantization {
  const std::string& bits;  // of both tensors
  Scheme scheme;
  int64_t group;
  KvCodec dense;
};

Result<KvCodec> TensorCodec(const TensorFlags& tensor, const Quantization& quantization) {
  if (!tensor.bits.empty() && !tensor.dtype.empty()) {
    return Invalid(std::string(tensor.bits_flag) + " quantizes what " + tensor.dtype_flag +
                   " keeps as it is; give one of the two");
  }
  if (!tensor.dtype.empty()) return ParseDense(tensor.dtype_flag, tensor.dtype);
  const bool own = !tensor.bits.empty();
  const std::string& bits = own ? tensor.bits : quantization.bits;
  if (bits.empty()) return quantization.dense;

  const std::string given = (own ? tensor.bits_flag : "--kv-bits") + std::string(" ") + bits;
  const int half_bits = HalfBits(bits);
  if (half_bits < 0) return Invalid(given + " is no number of bits; use for example 8, 4 or 3.5");
  const bool fractional = half_bits % 2 != 0;
  if (fractional && own) {
    return Invalid(given + ": one tensor has whole bits; --kv-bits " + bits +
                   " with turboquant gives keys the lower and values the higher number");
  }
  if (fractional && quantization.scheme != Scheme::kTurbo) {
    return Invalid(given +
                   " needs --kv-quant-scheme turboquant; with uniform quantization use "
                   "--kv-key-bits and --kv-value-bits");
  }
  return PackedCodec(given, half_bits + (fractional && tensor.round_up ? 1 : 0),
                     quantization.scheme, quantization.group);
}

// ERRORS: outside [least, kMaxRetentionTokens].
Result<int64_t> Tokens(const char* flag, const std::optional<int64_t>& given, int64_t otherwise,
                       int64_t least) {
  const int64_t tokens = given.value_or(otherwise);
  if (tokens >= least && tokens <= kMaxRetentionTokens) return tokens;
  return Invalid(std::string(flag) + " is " + std::to_string(tokens) + ", it must be from " +
                 std::to_string(least) + " to " + std::to_string(kMaxRetentionTokens));
}

Result<int64_t> BlockTokens(const char* flag, const std::optional<int64_t>& given,
                            int64_t otherwise, int64_t least) {
  KVASIR_TRY(const int64_t tokens, Tokens(flag, given, otherwise, least));
  return RoundUpToBlocks(tokens);
}

// "0,1,27"
Result<std::vector<int>> ParseLayers(const char* flag, const std::string& text) {
  std::vector<int> layers;
  const char* at = text.data();
  const char* const text_end = at + text.size();
  while (true) {
    int layer = -1;
    const auto [end, error] = std::from_chars(at, text_end, layer);
    if (error != std::errc() || layer < 0 || (end != text_end && *end != ',')) {
      return Invalid(std::string(flag) + " " + text +
                     " is no list of layers; use indices from 0, as in 0,1,27");
    }
    layers.push_back(layer);
    if (end == text_end) break;
    at = end + 1;
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

// The first flag that is given although it only means something with another, or nullptr.
const char* FirstGiven(std::initializer_list<std::pair<const char*, bool>> flags) {
  for (const auto& [flag, given] : flags) {
    if (given) return flag;
  }
  return nullptr;
}

Status SetCodecs(const KvPolicyFlags& flags, KvPolicy& policy) {
  KVASIR_TRY(const Scheme scheme, ParseScheme(flags.kv_quant_scheme));
  KVASIR_TRY(policy.dense_codec, ParseDense("--kv-dtype", flags.kv_dtype));
  const int64_t group = flags.kv_group_size.value_or(kDefaultGroup);
  if (group != 32 && group != 64 && group != 128) {
    return Invalid("--kv-group-size is " + std::to_string(group) + ", it must be 32, 64 or 128");
  }
  if (flags.kv_group_size && scheme == Scheme::kTurbo) {
    return Invalid(
        "--kv-group-size belongs to uniform quantization, turboquant scales whole rows; "
        "leave it out");
  }
  const Quantization quantization = {flags.kv_bits, scheme, group, policy.dense_codec};
  KVASIR_TRY(policy.key_codec, TensorCodec({"--kv-key-bits", flags.kv_key_bits, "--kv-key-dtype",
                                            flags.kv_key_dtype, false},
                                           quantization));
  KVASIR_TRY(policy.value_codec, TensorCodec({"--kv-value-bits", flags.kv_value_bits,
                                              "--kv-value-dtype", flags.kv_value_dtype, true},
                                             quantization));
  if (!policy.packs() && !flags.kv_bits.empty()) {
    return Invalid(
        "--kv-bits quantizes what --kv-key-dtype and --kv-value-dtype keep as it is; "
        "leave one of them out");
  }
  return {};
}

Status SetDenseParts(const KvPolicyFlags& flags, KvPolicy& policy) {
  if (!policy.packs()) {
    const char* flag = FirstGiven({{"--kv-group-size", flags.kv_group_size.has_value()},
                                   {"--kv-quant-scheme", !flags.kv_quant_scheme.empty()},
                                   {"--quantized-kv-start", flags.quantized_kv_start.has_value()},
                                   {"--kv-recent", flags.kv_recent.has_value()},
                                   {"--kv-dense-layers", !flags.kv_dense_layers.empty()},
                                   {"--kv-window-layers", !flags.kv_window_layers.empty()}});
    if (flag == nullptr) return {};
    return Invalid(std::string(flag) +
                   " means nothing while nothing is quantized; add --kv-bits, "
                   "or leave it out");
  }
  KVASIR_TRY(policy.dense_start,
             BlockTokens("--quantized-kv-start", flags.quantized_kv_start, 0, 0));
  KVASIR_TRY(policy.dense_recent, BlockTokens("--kv-recent", flags.kv_recent, 0, 0));
  if (flags.kv_dense_layers == "none") {
    policy.dense_layers = KvPolicy::DenseLayers::kNone;
  } else if (!flags.kv_dense_layers.empty() && flags.kv_dense_layers != "auto") {
    policy.dense_layers = KvPolicy::DenseLayers::kListed;
    KVASIR_TRY(policy.dense_layer_list, ParseLayers("--kv-dense-layers", flags.kv_dense_layers));
  }
  if (flags.kv_window_layers == "packed") {
    policy.window_layers = KvPolicy::WindowLayers::kPacked;
  } else if (!flags.kv_window_layers.empty() && flags.kv_window_layers != "dense") {
    return Invalid("--kv-window-layers " + flags.kv_window_layers +
                   " is unknown; use dense or "
                   "packed");
  }
  return {};
}

Status SetBudget(const KvPolicyFlags& flags, KvPolicy& policy) {
  if (!flags.compact_kv_budget) {
    const char* flag =
        FirstGiven({{"--kv-keep-first", flags.kv_keep_first.has_value()},
                    {"--kv-keep-recent", flags.kv_keep_recent.has_value()},
                    {"--kv-score", !flags.kv_score.empty()},
                    {"--kv-compact-interval", flags.kv_compact_interval.has_value()},
                    {"--kv-budget-per-layer", flags.kv_budget_per_layer},
                    {"--kv-budget-skip-layers", !flags.kv_budget_skip_layers.empty()}});
    if (flag == nullptr) return {};
    return Invalid(std::string(flag) +
                   " means nothing while nothing is evicted; add "
                   "--kv-budget, or leave it out");
  }
  RetentionSpec budget = {.kind = RetentionSpec::Kind::kBudget};
  KVASIR_TRY(budget.size, BlockTokens("--kv-budget", flags.compact_kv_budget, 0, 1));
  KVASIR_TRY(budget.keep, Tokens("--kv-keep-first", flags.kv_keep_first, kDefaultKeepFirst, 0));
  KVASIR_TRY(budget.interval,
             BlockTokens("--kv-compact-interval", flags.kv_compact_interval, kDefaultInterval, 1));
  const int64_t recent =
      std::max(policy.dense_recent, std::min(kDefaultKeepRecent, budget.size - kBlockTokens));
  KVASIR_TRY(budget.recent, BlockTokens("--kv-keep-recent", flags.kv_keep_recent, recent, 0));
  budget.score = kDefaultScore;
  if (!flags.kv_score.empty()) {
    const Result<RowScore> score = RowScoreFromName(flags.kv_score);
    if (!score.ok()) return WithContext(score.error(), "--kv-score");
    budget.score = *score;
  }
  budget.per_layer = flags.kv_budget_per_layer;
  if (!flags.kv_budget_skip_layers.empty()) {
    KVASIR_TRY(policy.budget_skip_layers,
               ParseLayers("--kv-budget-skip-layers", flags.kv_budget_skip_layers));
  }
  if (budget.recent < policy.dense_recent) {
    return Invalid("--kv-keep-recent is " + std::to_string(budget.recent) +
                   ", but --kv-recent holds " + std::to_string(policy.dense_recent) +
                   " rows that cannot be evicted; give --kv-keep-recent at least as many");
  }
  if (budget.keep + budget.recent > budget.size) {
    return Invalid("--kv-budget is " + std::to_string(budget.size) + " tokens, but " +
                   std::to_string(budget.keep) + " first and " + std::to_string(budget.recent) +
                   " recent ones are never evicted; raise it, or lower --kv-keep-first or "
                   "--kv-keep-recent");
  }
  policy.budget = budget;
  return {};
}

}  // namespace

Result<KvPolicy> KvPolicy::FromFlags(const KvPolicyFlags& flags) {
  KvPolicy policy;
  KVASIR_TRY_OK(SetCodecs(flags, policy));
  KVASIR_TRY_OK(SetDenseParts(flags, policy));
  KVASIR_TRY_OK(SetBudget(flags, policy));
  KVASIR_TRY_OK(policy.Validate());
  return policy;
}

std::vector<std::string> DescribeRounding(const KvPolicyFlags& flags) {
  const std::pair<const char*, const std::optional<int64_t>&> rounded[] = {
      {"--quantized-kv-start", flags.quantized_kv_start},
      {"--kv-recent", flags.kv_recent},
      {"--kv-budget", flags.compact_kv_budget},
      {"--kv-keep-recent", flags.kv_keep_recent},
      {"--kv-compact-interval", flags.kv_compact_interval},
  };
  std::vector<std::string> sentences;
  for (const auto& [flag, tokens] : rounded) {
    if (!tokens || *tokens < 0 || *tokens > kMaxRetentionTokens) continue;
    const int64_t used = RoundUpToBlocks(*tokens);
    if (used == *tokens) continue;
    sentences.push_back(std::string(flag) + " " + std::to_string(*tokens) + " is rounded up to " +
                        std::to_string(used) + ": the cache works in blocks of 64 tokens");
  }
  return sentences;
}

}  // namespace kvasir
