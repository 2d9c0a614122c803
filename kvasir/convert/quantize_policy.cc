#include "kvasir/convert/quantize_policy.h"

#include <algorithm>
#include <optional>
#include <string>

#include "kvasir/convert/tensor_names.h"

namespace kvasir {
namespace {

constexpr int64_t kFewestNumbers = 1024;

constexpr std::string_view kDense[] = {"norm",
                                       "router",
                                       "vision",
                                       "audio",
                                       "visual",
                                       "mlp.gate.",
                                       "feed_forward.gate.",
                                       "per_layer",
                                       "conv1d",
                                       "conv.conv.",
                                       "multi_modal",
                                       "position_embedding",
                                       "token_ordering",
                                       "centroids",
                                       "lora_",
                                       "rotary",
                                       "shared_expert_gate",
                                       "in_proj_a.",
                                       "in_proj_b.",
                                       "in_proj_ba."};

// Matrices of experts, and of heads.
constexpr std::string_view kStacks[] = {".switch_mlp.", ".switch_glu.", ".embed_q.",
                                        ".unembed_out."};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool IsTable(std::string_view name) {
  return name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight");
}

bool IsSensitive(std::string_view name, int64_t layers) {
  if (!Contains(name, "v_proj") && !Contains(name, "down_proj") && !Contains(name, ".w2.")) {
    return false;
  }
  const std::optional<int64_t> found = LayerOf(name);
  if (!found || layers == 0) return false;
  const int64_t layer = *found;
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= layers - eighth || (layer - eighth) % 3 == 2;
}

MlxFormat Wider(const MlxFormat& format) {
  if (format.mode == MlxMode::kAffine) return {MlxMode::kAffine, 8, format.group_size};
  return {MlxMode::kMxfp8, 8, 32};
}

}  // namespace

std::optional<MlxFormat> QuantizePolicy::For(std::string_view name,
                                             const std::vector<int64_t>& shape) const {
  if (shape.size() < 2 || shape.size() > 3) return std::nullopt;
  const bool is_stack =
      shape.size() == 3 && std::any_of(std::begin(kStacks), std::end(kStacks),
                                       [&](std::string_view part) { return Contains(name, part); });
  if (!is_stack && (shape.size() != 2 || !name.ends_with(".weight"))) return std::nullopt;
  if (std::any_of(std::begin(kDense), std::end(kDense),
                  [&](std::string_view part) { return Contains(name, part); })) {
    return std::nullopt;
  }
  int64_t numbers = 1;
  for (const int64_t extent : shape) numbers *= extent;
  if (numbers < kFewestNumbers) return std::nullopt;
  const bool wants_more = IsTable(name) ? !is_draft : IsSensitive(name, layers);
  const MlxFormat format = wants_more ? Wider(base) : base;
  const int64_t unit = std::max(format.group_size, 32);
  if (shape.back() % unit != 0) return std::nullopt;
  return format;
}

}  // namespace kvasir
