#include "kvasir/formats/mlx_quantization.h"

#include <array>

namespace kvasir {
namespace {

constexpr std::string_view kWrapper = "language_model.";

struct ModeDefaults {
  std::string_view name;
  int bits;
  int group_size;
};
// In the order of MlxMode.
constexpr std::array<ModeDefaults, 4> kModes = {{
    {"affine", 4, 64},
    {"mxfp4", 4, 32},
    {"mxfp8", 8, 32},
    {"nvfp4", 4, 16},
}};

bool Exists(const MlxFormat& format) {
  if (format.mode != MlxMode::kAffine) {
    const ModeDefaults& mode = kModes[static_cast<size_t>(format.mode)];
    return format.bits == mode.bits && format.group_size == mode.group_size;
  }
  const bool has_bits = format.bits >= 1 && format.bits <= 8 && format.bits != 7;
  return has_bits &&
         (format.group_size == 32 || format.group_size == 64 || format.group_size == 128);
}

Result<MlxFormat> ReadFormat(const Json& object, std::string_view default_mode) {
  KVASIR_TRY(const std::string name, object.GetStringOr("mode", std::string(default_mode)));
  size_t mode = 0;
  while (mode < kModes.size() && kModes[mode].name != name) ++mode;
  if (mode == kModes.size()) {
    return {ErrorCode::kUnsupported, "field 'mode' is '" + name.substr(0, 40) +
                                         "'; supported are affine, mxfp4, mxfp8 and nvfp4"};
  }
  KVASIR_TRY(const int64_t bits, object.GetIntOr("bits", kModes[mode].bits));
  KVASIR_TRY(const int64_t group, object.GetIntOr("group_size", kModes[mode].group_size));
  const bool fits = bits > 0 && bits <= 8 && group > 0 && group <= 128;
  const MlxFormat format = {static_cast<MlxMode>(mode), fits ? static_cast<int>(bits) : 0,
                            fits ? static_cast<int>(group) : 0};
  if (!Exists(format)) {
    return {ErrorCode::kUnsupported, name + " with " + std::to_string(bits) +
                                         " bits in groups of " + std::to_string(group) +
                                         " does not exist; affine has 1, 2, 3, 4, 5, 6 and 8 bits "
                                         "in groups of 32, 64 and 128"};
  }
  return format;
}

std::string_view WithoutWrapper(std::string_view path) {
  return path.starts_with(kWrapper) ? path.substr(kWrapper.size()) : path;
}

}  // namespace

std::string_view MlxModeName(MlxMode mode) { return kModes[static_cast<size_t>(mode)].name; }

Result<MlxQuantization> MlxQuantization::Parse(const Json& object) {
  if (!object.is_object()) {
    return {ErrorCode::kCorrupt, "must be an object, not " + std::string(object.type_name())};
  }
  MlxQuantization quantization;
  KVASIR_TRY(quantization.common_, ReadFormat(object, kModes[0].name));
  for (const auto& [key, value] : object.as_object()) {
    const std::string path(WithoutWrapper(key));
    if (value.is_object()) {
      auto format = ReadFormat(value, kModes[0].name);
      if (!format.ok()) return WithContext(format.error(), "field '" + key.substr(0, 200) + "'");
      quantization.overrides_[path] = *format;
    } else if (value == Json(false)) {
      quantization.overrides_[path] = std::nullopt;
    } else if (path.find('.') != std::string::npos && value != Json(true)) {
      return {ErrorCode::kCorrupt, "field '" + key.substr(0, 200) +
                                       "' must be an object, true or false for a module, not " +
                                       std::string(value.type_name())};
    }
  }
  return quantization;
}

std::optional<MlxFormat> MlxQuantization::For(std::string_view path) const {
  const auto found = overrides_.find(WithoutWrapper(path));
  return found == overrides_.end() ? common_ : found->second;
}

}  // namespace kvasir
