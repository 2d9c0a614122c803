#include "kvasir/tensor/quantize_group.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kvasir/tensor/dtype.h"

namespace kvasir {

QuantizedGroup QuantizeGroup(const float* values, int limit) {
  QuantizedGroup group;
  const auto most = static_cast<float>(limit);
  float largest = 0;
  for (size_t i = 0; i < kQuantGroup; ++i) largest = std::max(largest, std::fabs(values[i]));
  group.scale = FloatToF16(largest / most);
  const float scale = F16ToFloat(group.scale);
  for (size_t i = 0; i < kQuantGroup; ++i) {
    const float quotient = scale > 0 ? std::nearbyint(values[i] / scale) : 0.0f;
    group.codes[i] =
        static_cast<int8_t>(std::isnan(quotient) ? 0.0f : std::clamp(quotient, -most, most));
  }
  return group;
}

}  // namespace kvasir
