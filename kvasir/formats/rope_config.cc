#include "kvasir/formats/rope_config.h"

#include <cmath>
#include <numbers>
#include <string>

#include "kvasir/base/check.h"
#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/config_reader.h"

namespace kvasir {
namespace {

constexpr double kMaxFactor = 1e6;

// "rope_type", or "type" in files written before it had that name.
Result<RopeType> ReadType(const ConfigReader& fields) {
  const std::string_view key =
      fields.Find("rope_type") == nullptr && fields.Find("type") != nullptr ? "type" : "rope_type";
  if (fields.Find(key) == nullptr) {
    if (fields.Find("factor") != nullptr)
      return fields.Bad("rope_type", "is missing beside a factor");
    return RopeType::kDefault;
  }
  const Json& value = *fields.Find(key);
  if (!value.is_string()) return fields.Bad(key, "must be a string");
  for (RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn,
                        RopeType::kProportional}) {
    if (value.as_string() == RopeTypeName(type)) return type;
  }
  return fields.Bad(key,
                    "is '" + value.as_string().substr(0, 40) +
                        "'; supported are default, linear, llama3, yarn and proportional",
                    ErrorCode::kUnsupported);
}

Status ReadLlama3(const ConfigReader& fields, RopeConfig* rope) {
  KVASIR_TRY(rope->low_freq_factor, fields.Number("low_freq_factor", 1.0, 1e-6, kMaxFactor));
  KVASIR_TRY(rope->high_freq_factor, fields.Number("high_freq_factor", 4.0, 1e-6, kMaxFactor));
  if (rope->low_freq_factor >= rope->high_freq_factor) {
    return fields.Bad("high_freq_factor", "must be greater than low_freq_factor");
  }
  KVASIR_TRY(rope->original_max_position_embeddings,
             fields.Integer("original_max_position_embeddings", 0, 1, kMaxPositions));
  return {};
}

double YarnScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Status ReadYarn(const ConfigReader& fields, int64_t max_position_embeddings, RopeConfig* rope) {
  KVASIR_TRY(rope->beta_fast, fields.Number("beta_fast", 32.0, 1e-6, kMaxFactor));
  KVASIR_TRY(rope->beta_slow, fields.Number("beta_slow", 1.0, 1e-6, kMaxFactor));
  if (rope->theta == 1.0) return fields.Bad("rope_theta", "must be greater than 1 for yarn");
  if (rope->beta_fast < rope->beta_slow) {
    return fields.Bad("beta_fast", "must not be less than beta_slow");
  }
  KVASIR_TRY(rope->original_max_position_embeddings,
             fields.Integer("original_max_position_embeddings", max_position_embeddings, 1,
                            kMaxPositions));
  KVASIR_TRY(rope->truncates, fields.Flag("truncate", true));
  // A scale of 0 counts as absent, as in the reference.
  KVASIR_TRY(const double mscale, fields.Number("mscale", 0.0, 0.0, kMaxFactor));
  KVASIR_TRY(const double mscale_all, fields.Number("mscale_all_dim", 0.0, 0.0, kMaxFactor));
  const double resolved = mscale > 0.0 && mscale_all > 0.0 ? YarnScale(rope->factor, mscale) /
                                                                 YarnScale(rope->factor, mscale_all)
                                                           : YarnScale(rope->factor, 1.0);
  KVASIR_TRY(rope->attention_factor, fields.Number("attention_factor", resolved, 1e-6, kMaxFactor));
  return {};
}

Result<RopeConfig> ReadRope(const ConfigReader& fields, double theta,
                            int64_t max_position_embeddings, double rotated_fraction) {
  RopeConfig rope;
  KVASIR_TRY(rope.theta, fields.Number("rope_theta", theta, 1.0, 1e12));
  KVASIR_TRY(rope.type, ReadType(fields));
  KVASIR_TRY(rope.rotated_fraction,
             fields.Number("partial_rotary_factor", rotated_fraction, 0.0, 1.0));
  if (rope.type == RopeType::kProportional) {
    KVASIR_TRY(rope.factor, fields.Number("factor", 1.0, 1.0, kMaxFactor));
    return rope;
  }
  if (rope.type == RopeType::kDefault) return rope;
  if (fields.Find("factor") == nullptr) return fields.Bad("factor", "is missing");
  KVASIR_TRY(rope.factor, fields.Number("factor", 1.0, 1.0, kMaxFactor));
  if (rope.type == RopeType::kLlama3) KVASIR_TRY_OK(ReadLlama3(fields, &rope));
  if (rope.type == RopeType::kYarn) {
    KVASIR_TRY_OK(ReadYarn(fields, max_position_embeddings, &rope));
  }
  return rope;
}

}  // namespace

std::string_view RopeTypeName(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kProportional:
      return "proportional";
  }
  KVASIR_CHECK(false);
}

Result<RopeConfig> RopeConfig::Parse(const Json& object, std::string_view field, double theta,
                                     int64_t max_position_embeddings, double rotated_fraction) {
  if (object.is_null()) {
    RopeConfig rope;
    rope.theta = theta;
    rope.rotated_fraction = rotated_fraction;
    return rope;
  }
  if (!object.is_object()) {
    return {ErrorCode::kCorrupt, "field '" + std::string(field) + "' must be an object, not " +
                                     std::string(object.type_name())};
  }
  auto rope =
      ReadRope(ConfigReader(object, object), theta, max_position_embeddings, rotated_fraction);
  if (!rope.ok()) return WithContext(rope.error(), field);
  return rope;
}

int RotatedElements(const RopeConfig& rope, int head_dim) {
  return static_cast<int>(rope.rotated_fraction * head_dim);
}

double Llama3Scaled(double frequency, const RopeConfig& rope) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return frequency * ((1 - smooth) / rope.factor + smooth);
}

}  // namespace kvasir
