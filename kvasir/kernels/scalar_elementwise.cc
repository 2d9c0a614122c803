// The elementwise oracle: norms, activations, rotary embedding, softmax, argmax as plain loops.
// Deliberately slow: it exists to be read and compared against.
#include <array>
#include <cmath>
#include <limits>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/table_parts.h"

namespace kvasir {
namespace {

float Norm(const float* x, int64_t count) noexcept {
  std::array<float, 16> lanes = {};
  for (int64_t i = 0; i < count; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  return std::sqrt(scalar::SumLanes(lanes));
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t count, float* out) noexcept {
  std::array<float, 16> lanes = {};
  for (int64_t i = 0; i < count; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float mean = scalar::SumLanes(lanes) / static_cast<float>(count);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < count; ++i) {
    const float normalized = x[i] * inverse;
    out[i] = weight == nullptr ? normalized : normalized * weight[i];
  }
}

void Rope(float* x, const float* cos, const float* sin, int64_t pairs) noexcept {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[i];
    const float b = x[i + pairs];
    x[i] = std::fma(-b, sin[i], a * cos[i]);
    x[i + pairs] = std::fma(a, sin[i], b * cos[i]);
  }
}

void SiluGate(float* gate, const float* up, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    gate[i] = gate[i] / (1.0f + scalar::Exp(-gate[i])) * up[i];
  }
}

void ClampedGate(float* gate, const float* up, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    // Comparisons that let a NaN through.
    const float g = gate[i] > math::kGateLimit ? math::kGateLimit : gate[i];
    float u = up[i] > math::kGateLimit ? math::kGateLimit : up[i];
    u = u < -math::kGateLimit ? -math::kGateLimit : u;
    const float denominator = 1.0f + scalar::Exp(-(math::kGateSlope * g));
    gate[i] = g / denominator * (u + 1.0f);
  }
}

void SigmoidGate(float* gate, const float* up, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) gate[i] = up[i] / (1.0f + scalar::Exp(-gate[i]));
}

void ProductGate(float* gate, const float* up, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) gate[i] = gate[i] * up[i];
}

void GeluTanhGate(float* gate, const float* up, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    const float x = gate[i];
    const float inner = math::kSqrtTwoOverPi * x * std::fma(math::kGeluCubic, x * x, 1.0f);
    gate[i] = 0.5f * x * (1.0f + scalar::Tanh(inner)) * up[i];
  }
}

void Add(float* accumulator, const float* x, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) accumulator[i] += x[i];
}

void Scale(float* x, float factor, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

void Divide(const float* x, float divisor, int64_t count, float* out) noexcept {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] / divisor;
}

void Merge(float* accumulator, float keep, const float* x, float take, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) accumulator[i] = accumulator[i] * keep + x[i] * take;
}

void Softcap(float* x, float cap, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) x[i] = scalar::Softcap(x[i], cap);
}

void Softmax(float* x, int64_t count) noexcept {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] > max) max = x[i];
  }
  std::array<float, 16> lanes = {};
  for (int64_t i = 0; i < count; ++i) {
    x[i] = scalar::Exp(x[i] - max);
    lanes[i % 16] += x[i];
  }
  const float sum = scalar::SumLanes(lanes);
  for (int64_t i = 0; i < count; ++i) x[i] /= sum;
}

int64_t Argmax(const float* x, int64_t count) noexcept {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (x[i] > x[best] || (std::isnan(x[best]) && !std::isnan(x[i]))) best = i;
  }
  return best;
}

}  // namespace

void FillScalarElementwise(KernelTable* table) {
  table->norm = Norm;
  table->rms_norm = RmsNorm;
  table->rope = Rope;
  table->silu_gate = SiluGate;
  table->clamped_gate = ClampedGate;
  table->sigmoid_gate = SigmoidGate;
  table->product_gate = ProductGate;
  table->gelu_tanh_gate = GeluTanhGate;
  table->add = Add;
  table->scale = Scale;
  table->divide = Divide;
  table->merge = Merge;
  table->softcap = Softcap;
  table->softmax = Softmax;
  table->argmax = Argmax;
}

}  // namespace kvasir
