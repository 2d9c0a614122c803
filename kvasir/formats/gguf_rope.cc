#include "kvasir/formats/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <string>

namespace kvasir {
namespace {

constexpr float kStill = 1e30f;  // of a pair that does not turn
// Angles stay in the range of SinCos: 2^20 positions times 2^10.
constexpr float kLeastDivisor = 0x1p-10f;
// llama.cpp's converter calculates in float, where theta to a power alone is off by 1e-6.
constexpr float kConverterError = 1e-5f;

double Frequency(double theta, size_t pair, size_t pairs) {
  return std::pow(theta, -static_cast<double>(pair) / static_cast<double>(pairs));
}

// Where all pairs have one divisor.
Json UniformOf(const std::vector<float>& divisors, double theta) {
  const float factor = divisors[0];
  if (factor < 1.0f || std::any_of(divisors.begin(), divisors.end(),
                                   [&](float divisor) { return divisor != factor; })) {
    return {};
  }
  if (factor == 1.0f) return Json::Object{{"rope_type", "default"}, {"rope_theta", theta}};
  return Json::Object{
      {"rope_type", "linear"}, {"rope_theta", theta}, {"factor", ShortestDecimal(factor)}};
}

// Whether the first pairs have one divisor and all others stand still.
Json ProportionalOf(const std::vector<float>& divisors, double theta) {
  const auto turning = std::find(divisors.begin(), divisors.end(), kStill) - divisors.begin();
  const auto pairs = static_cast<int64_t>(divisors.size());
  if (turning == pairs) return {};
  double fraction = static_cast<double>(turning) / static_cast<double>(pairs);
  // Readers multiply and cut.
  if (static_cast<int64_t>(fraction * static_cast<double>(2 * pairs) / 2) < turning) {
    fraction = std::nextafter(fraction, 2.0);
  }
  Json found = Json::Object{
      {"rope_type", "proportional"}, {"rope_theta", theta}, {"partial_rotary_factor", fraction}};
  if (turning > 0 && divisors[0] != 1.0f) found.Set("factor", ShortestDecimal(divisors[0]));
  return found;
}

// A number that somebody wrote into a config, of which only its float is left.
double Written(double value) { return std::round(value * 1000) / 1000; }

bool AreClose(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::fabs(x - y) <= kConverterError * std::fabs(y);
  });
}

// What divisors say of llama3's parameters.
struct Llama3 {
  double factor;
  double high;      // low is 1
  double original;  // L0

  Json Parameters(double theta) const {
    return Json::Object{
        {"rope_type", "llama3"},
        {"rope_theta", theta},
        {"factor", factor},
        {"low_freq_factor", 1.0},
        {"high_freq_factor", high},
        {"original_max_position_embeddings", static_cast<int64_t>(std::llround(original))}};
  }
};

// Between wavelengths L0 / high and L0 / low, 1 / divisor = (1 - s) / factor + s where
// s = (L0 / wavelength - low) / (high - low): a line, whose slope and start say L0 and high.
std::optional<Llama3> Llama3Of(const std::vector<float>& divisors, double theta) {
  const double factor = Written(divisors.back());
  if (!(factor > 1)) return std::nullopt;
  struct Point {
    double turns;  // 1 / wavelength
    double s;
  };
  std::vector<Point> line;
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (divisors[i] == 1.0f || divisors[i] == divisors.back()) continue;
    line.push_back({Frequency(theta, i, divisors.size()) / (2 * std::numbers::pi),
                    (1.0 / divisors[i] - 1 / factor) / (1 - 1 / factor)});
  }
  if (line.empty()) return std::nullopt;
  double high = 4;  // everywhere it was published
  double original = (3 * line.front().s + 1) / line.front().turns;
  if (line.size() > 1) {
    const double slope =
        (line.front().s - line.back().s) / (line.front().turns - line.back().turns);
    high = Written(1 - 1 / (line.front().s - slope * line.front().turns));
    original = slope * (high - 1);
  }
  if (!(original >= 1 && original < 1e9)) return std::nullopt;
  return Llama3{factor, high, original};
}

// The round numbers next to them, if divisors say all of them: where divisors are rounded, any
// others would be a guess. Whether these are the ones, their divisors say.
std::optional<Llama3> Rounded(const std::vector<float>& divisors, const Llama3& found) {
  const size_t pairs = divisors.size();
  const bool has_plateau = pairs > 1 && divisors[pairs - 1] == divisors[pairs - 2];
  // A power of two, or a multiple of 1,024.
  const double unit = std::min(1024.0, std::exp2(std::round(std::log2(found.original))));
  const Llama3 round = {std::round(found.factor), std::round(2 * found.high) / 2,
                        std::round(found.original / unit) * unit};
  if (!has_plateau || round.factor != found.factor) return std::nullopt;
  return round;
}

}  // namespace

Result<std::vector<float>> ReadGgufRopeDivisors(const GgufFile& file, int64_t head_dim) {
  std::vector<float> divisors;
  if (file.Find(kGgufRopeDivisors) == nullptr) return divisors;
  KVASIR_TRY(const WeightTensor tensor, file.Get(kGgufRopeDivisors, {head_dim / 2}));
  divisors.resize(static_cast<size_t>(head_dim / 2));
  tensor.read_row(0, divisors.data());
  for (const float divisor : divisors) {
    if (divisor >= kLeastDivisor) continue;
    return {ErrorCode::kCorrupt,
            "tensor '" + std::string(kGgufRopeDivisors) + "' must hold numbers from 2^-10 on"};
  }
  return divisors;
}

std::vector<float> GgufRopeDivisors(const RopeConfig& rope, int head_dim) {
  const auto pairs = static_cast<size_t>(head_dim / 2);
  std::vector<float> divisors = rope.frequency_divisors;
  if (rope.type == RopeType::kProportional) {
    divisors.assign(pairs, kStill);
    const auto turning = static_cast<size_t>(rope.rotated_fraction * head_dim / 2);
    std::fill_n(divisors.begin(), turning, static_cast<float>(rope.factor));
  } else if (rope.type == RopeType::kLlama3) {
    divisors.clear();
    for (size_t i = 0; i < pairs; ++i) {
      const double frequency = Frequency(rope.theta, i, pairs);
      divisors.push_back(static_cast<float>(frequency / Llama3Scaled(frequency, rope)));
    }
  }
  return divisors;
}

Json RopeParametersOf(const std::vector<float>& divisors, double theta) {
  if (divisors.empty()) return {};
  const Json uniform = UniformOf(divisors, theta);
  // A factor may be too large to be one: pairs that stand still have 1e30.
  const bool is_uniform =
      !uniform.is_null() && RopeConfig::Parse(uniform, "rope_parameters", {theta, 1}).ok();
  if (is_uniform) return uniform;
  // Whether these are the parameters: what they give is then compared.
  const auto are = [&](const Json& parameters, const auto& same) {
    const auto rope = RopeConfig::Parse(parameters, "rope_parameters", {theta, 1});
    return rope.ok() &&
           same(GgufRopeDivisors(*rope, 2 * static_cast<int>(divisors.size())), divisors);
  };
  const Json proportional = ProportionalOf(divisors, theta);
  if (!proportional.is_null() && are(proportional, std::equal_to<>())) return proportional;
  const std::optional<Llama3> found = Llama3Of(divisors, theta);
  if (!found) return {};
  if (are(found->Parameters(theta), std::equal_to<>())) return found->Parameters(theta);
  const std::optional<Llama3> round = Rounded(divisors, *found);
  if (round && are(round->Parameters(theta), AreClose)) return round->Parameters(theta);
  return {};
}

}  // namespace kvasir
