#include "kvasir/convert/weight_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "kvasir/tensor/affine_codec.h"
#include "kvasir/tensor/fold.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

struct Name {
  std::string_view name;
  MlxFormat format;
};
constexpr Name kNames[] = {
    {"int4", {MlxMode::kAffine, 4, 64}}, {"int8", {MlxMode::kAffine, 8, 64}},
    {"int2", {MlxMode::kAffine, 2, 64}}, {"int3", {MlxMode::kAffine, 3, 64}},
    {"int5", {MlxMode::kAffine, 5, 64}}, {"int6", {MlxMode::kAffine, 6, 64}},
    {"mxfp4", {MlxMode::kMxfp4, 4, 32}}, {"mxfp8", {MlxMode::kMxfp8, 8, 32}},
    {"nvfp4", {MlxMode::kNvfp4, 4, 16}}, {"q4", {MlxMode::kAffine, 4, 64}},
    {"q8", {MlxMode::kAffine, 8, 64}},
};

// False where a finite number has no finite one to become.
bool StoreFloat(float value, DType dtype, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return true;
  }
  const uint16_t bits = dtype == DType::kF16 ? FloatToF16(value) : FloatToBf16(value);
  std::memcpy(to, &bits, sizeof(bits));
  return !IsInfinite(bits, dtype) || std::isinf(value);
}

// Magnitudes of an element type by code, ascending; the sign is the next bit.
struct Magnitudes {
  std::array<float, 127> of = {};
  int count = 0;
  int top_exponent = 0;  // of the largest
  int sign = 0;
};

// Ends at 6 = 1.5 * 2^2.
Magnitudes E2m1() { return {{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f}, 8, 2, 8}; }

// Ends at 448 = 1.75 * 2^8; its last code is NaN.
Magnitudes E4m3() {
  Magnitudes out = {{}, 127, 8, 0x80};
  for (int code = 0; code < out.count; ++code) {
    const int exponent = code >> 3;
    const auto mantissa = static_cast<float>(code & 7);
    out.of[static_cast<size_t>(code)] =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0f + mantissa, exponent - 10);
  }
  return out;
}

// The code of the nearest magnitude, of two equally near ones the even.
uint8_t Nearest(const Magnitudes& table, float magnitude) {
  const auto begin = table.of.begin();
  const auto end = begin + table.count;
  const auto above = std::lower_bound(begin, end, magnitude);
  if (above == begin) return 0;
  if (above == end) return static_cast<uint8_t>(table.count - 1);
  const auto code = static_cast<uint8_t>(above - begin);
  const float up = *above - magnitude;
  const float down = magnitude - *(above - 1);
  if (up == down) return code % 2 == 0 ? code : code - 1;
  return up < down ? code : code - 1;
}

// The largest magnitude of those that are finite.
float LargestFinite(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// What elements are divided by, with the code that says so.
struct Microscale {
  float scale;
  uint8_t code;
};

Microscale PowerOfTwo(int exponent) {
  const int known = std::clamp(exponent, -127, 127);
  return {std::ldexp(1.0f, known), static_cast<uint8_t>(known + 127)};
}

// E2M1's largest times E4M3's. Scales of the other types reach as far as floats do.
constexpr float kMostOfNvfp4 = 6.0f * 448.0f;

// Of nothing but zeros, or so small that their scale is one, nothing is left.
float Scaled(float value, float scale) {
  const float scaled = scale > 0 ? std::fabs(value) / scale : 0.0f;
  return std::isnan(scaled) ? INFINITY : scaled;
}

// Of elements of four bits.
float NearestE2m1(float magnitude) {
  constexpr std::pair<float, float> kSteps[] = {{0.25f, 0.5f}, {0.75f, 0.5f}, {1.25f, 0.5f},
                                                {1.75f, 0.5f}, {2.5f, 1.0f},  {3.5f, 1.0f},
                                                {5.0f, 2.0f}};
  float nearest = 0;
  for (const auto& [from, step] : kSteps) nearest += magnitude > from ? step : 0.0f;
  return nearest;
}

// Of a group whose numbers are finite, divided by `scale` and coded as E2M1.
template <size_t count>
double SquaredError(const std::array<float, count>& magnitudes, float scale) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  std::array<double, count> errors;
  for (size_t i = 0; i < count; ++i) {
    const float nearest = NearestE2m1(magnitudes[i] * inverse) * scale;
    const double error = double{nearest} - double{magnitudes[i]};
    errors[i] = error * error;
  }
  return Sum(errors);
}

// The magnitudes of what is finite, 0 for the rest.
template <size_t count>
std::array<float, count> FiniteMagnitudes(std::span<const float> values) {
  std::array<float, count> out;
  for (size_t i = 0; i < count; ++i) out[i] = std::isfinite(values[i]) ? std::fabs(values[i]) : 0;
  return out;
}

// The one with the least squared error, the first of equally good ones.
template <size_t count>
Microscale Best(std::span<const float> values, std::span<const Microscale> scales) {
  const auto magnitudes = FiniteMagnitudes<count>(values);
  Microscale best = scales[0];
  double least = SquaredError(magnitudes, best.scale);
  for (const Microscale& scale : scales.subspan(1)) {
    const double error = SquaredError(magnitudes, scale.scale);
    if (error >= least) continue;
    least = error;
    best = scale;
  }
  return best;
}

// The least power of two with which the largest is no larger than the elements' largest.
int FittingExponent(float largest, const Magnitudes& elements) {
  const int exponent = std::ilogb(largest) - elements.top_exponent;
  const float top = elements.of[static_cast<size_t>(elements.count - 1)];
  return largest > std::ldexp(top, exponent) ? exponent + 1 : exponent;
}

// E8M0. Elements of four bits have few steps, so half of the scale that fits may be the nearer for
// all but the largest.
Microscale NearestE8m0(std::span<const float> values, float largest, const Magnitudes& elements) {
  if (largest == 0) return PowerOfTwo(-127);
  const int exponent = FittingExponent(largest, elements);
  if (elements.count > 8) return PowerOfTwo(exponent);
  return Best<32>(values, std::array{PowerOfTwo(exponent), PowerOfTwo(exponent - 1)});
}

// E4M3 over elements of four bits. Steps of an eighth around the one with which the largest is the
// elements' largest, 6; up to where it is 4, whose neighbours are nearer.
Microscale NearestE4m3(std::span<const float> values, float largest) {
  static const Magnitudes kScales = E4m3();
  constexpr int kBelow = 2;
  constexpr int kAbove = 5;
  const int nearest = Nearest(kScales, largest / 6.0f);
  std::array<Microscale, kBelow + 1 + kAbove> scales;
  size_t count = 0;
  const auto add = [&](int code) {
    scales[count++] = {kScales.of[static_cast<size_t>(code)], static_cast<uint8_t>(code)};
  };
  for (int code = nearest; code <= std::min(nearest + kAbove, kScales.count - 1); ++code) add(code);
  for (int code = nearest - 1; code >= std::max(nearest - kBelow, 0); --code) add(code);
  return Best<16>(values, std::span(scales).first(count));
}

}  // namespace

Result<MlxFormat> MlxFormatFromName(std::string_view name, int group_size) {
  for (const Name& known : kNames) {
    if (known.name != name) continue;
    MlxFormat format = known.format;
    if (group_size == 0) return format;
    if (format.mode != MlxMode::kAffine ||
        (group_size != 32 && group_size != 64 && group_size != 128)) {
      return {ErrorCode::kInvalidArgument,
              "a group size is 32, 64 or 128, and only for int2 to int8; " + std::string(name) +
                  " with " + std::to_string(group_size) + " does not exist"};
    }
    format.group_size = group_size;
    return format;
  }
  return {ErrorCode::kInvalidArgument,
          "quantization type '" + std::string(name.substr(0, 40)) +
              "' is unknown; use int4, int8, mxfp4, nvfp4, mxfp8, int2, int3, int5 or int6"};
}

std::string MlxFormatLabel(const MlxFormat& format) {
  if (format.mode != MlxMode::kAffine) return std::string(MlxModeName(format.mode));
  return "int" + std::to_string(format.bits);
}

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

Error NotFinite(std::string_view tensor, std::string_view type) {
  return {ErrorCode::kInvalidArgument, "tensor '" + std::string(tensor) +
                                           "' has infinities or NaN, which " + std::string(type) +
                                           " does not: the model is broken, or wants f32"};
}

WeightEncoder::WeightEncoder(const WeightEncoding& encoding, int64_t inputs)
    : encoding_(encoding), inputs_(inputs) {
  const auto columns = static_cast<size_t>(inputs);
  if (!encoding.is_quantized) {
    weight_bytes_ = columns * DTypeBytes(encoding.dtype);
    return;
  }
  const MlxFormat& format = encoding.format;
  const bool is_affine = format.mode == MlxMode::kAffine;
  const size_t groups = columns / static_cast<size_t>(format.group_size);
  weight_bytes_ = columns / 8 * static_cast<size_t>(format.bits);
  scale_bytes_ = groups * (is_affine ? DTypeBytes(encoding.dtype) : 1);
  bias_bytes_ = is_affine ? scale_bytes_ : 0;
}

bool WeightEncoder::Encode(const float* row, std::byte* weight, std::byte* scales,
                           std::byte* biases) const {
  if (encoding_.is_quantized) {
    if (encoding_.format.mode == MlxMode::kAffine) return EncodeAffine(row, weight, scales, biases);
    return EncodeMicroscaled(row, weight, scales);
  }
  const size_t element = DTypeBytes(encoding_.dtype);
  bool fits = true;
  for (int64_t i = 0; i < inputs_; ++i) {
    fits &= StoreFloat(row[i], encoding_.dtype, weight + static_cast<size_t>(i) * element);
  }
  return fits;
}

bool WeightEncoder::EncodeAffine(const float* row, std::byte* weight, std::byte* scales,
                                 std::byte* biases) const {
  const auto size = static_cast<size_t>(encoding_.format.group_size);
  const size_t element = DTypeBytes(encoding_.dtype);
  std::vector<uint8_t> codes(static_cast<size_t>(inputs_));
  bool fits = true;
  for (size_t g = 0; g < codes.size() / size; ++g) {
    const AffineGroup group =
        QuantizeAffineGroup(std::span(row + g * size, size), encoding_.format.bits,
                            KvCodec::Scales::kF32, codes.data() + g * size);
    fits &= StoreFloat(group.scale, encoding_.dtype, scales + g * element);
    fits &= StoreFloat(group.bias, encoding_.dtype, biases + g * element);
  }
  std::vector<uint32_t> words(weight_bytes_ / sizeof(uint32_t));
  PackRow(codes, encoding_.format.bits, words.data());
  std::memcpy(weight, words.data(), weight_bytes_);
  return fits;
}

bool WeightEncoder::EncodeMicroscaled(const float* row, std::byte* weight,
                                      std::byte* scales) const {
  const MlxFormat& format = encoding_.format;
  const Magnitudes elements = format.mode == MlxMode::kMxfp8 ? E4m3() : E2m1();
  const auto size = static_cast<size_t>(format.group_size);
  std::vector<uint8_t> codes(static_cast<size_t>(inputs_));
  bool fits = true;
  for (size_t begin = 0; begin < codes.size(); begin += size) {
    const std::span<const float> values(row + begin, size);
    const float largest = LargestFinite(values);
    fits &= format.mode != MlxMode::kNvfp4 || largest <= kMostOfNvfp4;
    const Microscale by = format.mode == MlxMode::kNvfp4 ? NearestE4m3(values, largest)
                                                         : NearestE8m0(values, largest, elements);
    scales[begin / size] = static_cast<std::byte>(by.code);
    for (size_t i = 0; i < size; ++i) {
      const uint8_t code = Nearest(elements, Scaled(values[i], by.scale));
      codes[begin + i] = static_cast<uint8_t>(code | (std::signbit(values[i]) ? elements.sign : 0));
    }
  }
  std::vector<uint32_t> words(weight_bytes_ / sizeof(uint32_t));
  PackRow(codes, format.bits, words.data());
  std::memcpy(weight, words.data(), weight_bytes_);
  return fits;
}

}  // namespace kvasir
