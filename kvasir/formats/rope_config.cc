#include "kvasir/formats/rope_config.h"

#include <cmath>
#include <numbers>
#include <string>
#include <utility>

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
                        RopeType::kProportional, RopeType::kLong}) {
    if (value.as_string() == RopeTypeName(type)) return type;
  }
  if (value.as_string() == "su") return RopeType::kLong;  // as it was called at first
  return fields.Bad(key,
                    "is '" + value.as_string().substr(0, 40) +
                        "'; supported are default, linear, llama3, yarn, proportional and longrope",
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

Status ReadYarn(const ConfigReader& fields, const RopeDefaults& defaults, RopeConfig* rope) {
  KVASIR_TRY(rope->beta_fast, fields.Number("beta_fast", 32.0, 1e-6, kMaxFactor));
  KVASIR_TRY(rope->beta_slow, fields.Number("beta_slow", 1.0, 1e-6, kMaxFactor));
  if (rope->theta == 1.0) return fields.Bad("rope_theta", "must be greater than 1 for yarn");
  if (rope->beta_fast < rope->beta_slow) {
    return fields.Bad("beta_fast", "must not be less than beta_slow");
  }
  KVASIR_TRY(rope->original_max_position_embeddings,
             fields.Integer("original_max_position_embeddings", defaults.max_position_embeddings, 1,
                            kMaxPositions));
  KVASIR_TRY(rope->truncates, fields.Flag("truncate", true));
  // A scale of 0 counts as absent, as in the reference.
  KVASIR_TRY(const double mscale, fields.Number("mscale", 0.0, 0.0, kMaxFactor));
  KVASIR_TRY(const double mscale_all, fields.Number("mscale_all_dim", 0.0, 0.0, kMaxFactor));
  const double resolved = mscale > 0.0 && mscale_all > 0.0 ? YarnScale(rope->factor, mscale) /
                                                                 YarnScale(rope->factor, mscale_all)
                                                           : YarnScale(rope->factor, 1.0);
  KVASIR_TRY(rope->attention_factor, fields.Number("attention_factor", resolved, 1e-6, kMaxFactor));
  if (mscale_all > 0.0) rope->scale_of_all = YarnScale(rope->factor, mscale_all);
  KVASIR_TRY(rope->query_scale_beta, fields.Number("llama_4_scaling_beta", 0.0, 0.0, kMaxFactor));
  return {};
}

Result<std::vector<float>> ReadDivisors(const ConfigReader& fields, std::string_view field) {
  const Json* list = fields.Find(field);
  if (list == nullptr) return fields.Bad(field, "is missing");
  if (!list->is_array() || static_cast<int64_t>(list->as_array().size()) > kMaxHeadDim / 2) {
    return fields.Bad(field, "must be a list of a number for each pair that turns");
  }
  std::vector<float> divisors;
  for (const Json& value : list->as_array()) {
    // Angles stay in the range of SinCos: 2^20 positions times 2^10.
    if (!value.is_number() || !(value.as_double() >= 0x1p-10) || value.as_double() > 1e30) {
      return fields.Bad(field, "must hold numbers from 2^-10 on");
    }
    divisors.push_back(static_cast<float>(value.as_double()));
  }
  return divisors;
}

Status ReadLong(const ConfigReader& fields, const RopeDefaults& defaults, RopeConfig* rope) {
  const int64_t positions = defaults.max_position_embeddings;
  const int64_t said = defaults.original_max_position_embeddings;
  KVASIR_TRY(const int64_t original, fields.Integer("original_max_position_embeddings",
                                                    said > 0 ? said : positions, 1, kMaxPositions));
  rope->original_max_position_embeddings = original;
  KVASIR_TRY(rope->frequency_divisors, ReadDivisors(fields, "long_factor"));
  KVASIR_TRY(rope->other_divisors, ReadDivisors(fields, "short_factor"));
  rope->takes_long = positions > original;
  if (!rope->takes_long) std::swap(rope->frequency_divisors, rope->other_divisors);
  const double stretch = static_cast<double>(positions) / static_cast<double>(original);
  KVASIR_TRY(const double factor, fields.Number("factor", stretch, 0.0, kMaxFactor));
  KVASIR_TRY(rope->attention_factor,
             fields.Number("attention_factor", LongRopeAttentionFactor(factor, original), 1e-6,
                           kMaxFactor));
  return {};
}

Result<RopeConfig> ReadRope(const ConfigReader& fields, const RopeDefaults& defaults) {
  RopeConfig rope;
  KVASIR_TRY(rope.theta, fields.Number("rope_theta", defaults.theta, 1.0, 1e12));
  KVASIR_TRY(rope.type, ReadType(fields));
  KVASIR_TRY(rope.rotated_fraction,
             fields.Number("partial_rotary_factor", defaults.rotated_fraction, 0.0, 1.0));
  if (rope.type == RopeType::kProportional) {
    KVASIR_TRY(rope.factor, fields.Number("factor", 1.0, 1.0, kMaxFactor));
    return rope;
  }
  if (rope.type == RopeType::kDefault) return rope;
  if (rope.type == RopeType::kLong) {
    KVASIR_TRY_OK(ReadLong(fields, defaults, &rope));
    return rope;
  }
  if (fields.Find("factor") == nullptr) return fields.Bad("factor", "is missing");
  KVASIR_TRY(rope.factor, fields.Number("factor", 1.0, 1.0, kMaxFactor));
  if (rope.type == RopeType::kLlama3) KVASIR_TRY_OK(ReadLlama3(fields, &rope));
  if (rope.type == RopeType::kYarn) {
    KVASIR_TRY_OK(ReadYarn(fields, defaults, &rope));
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
    case RopeType::kLong:
      return "longrope";
  }
  KVASIR_CHECK(false);
}

Result<RopeConfig> RopeConfig::Parse(const Json& object, std::string_view field,
                                     const RopeDefaults& defaults) {
  if (object.is_null()) {
    RopeConfig rope;
    rope.theta = defaults.theta;
    rope.rotated_fraction = defaults.rotated_fraction;
    return rope;
  }
  if (!object.is_object()) {
    return {ErrorCode::kCorrupt, "field '" + std::string(field) + "' must be an object, not " +
                                     std::string(object.type_name())};
  }
  auto rope = ReadRope(ConfigReader(object, object), defaults);
  if (!rope.ok()) return WithContext(rope.error(), field);
  return rope;
}

int RotatedElements(const RopeConfig& rope, int head_dim) {
  return static_cast<int>(rope.rotated_fraction * head_dim);
}

double LongRopeAttentionFactor(double stretch, int64_t original) {
  if (stretch <= 1.0 || original <= 1) return 1.0;
  return std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(original)));
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
