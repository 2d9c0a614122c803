#include "kvasir/convert/gguf_hybrids.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/scalar_math.h"
#include "kvasir/convert/remade_tensor.h"

namespace kvasir {
namespace {

// A vector as the rows of a matrix; `map` of every number.
template <typename Map>
SourceTensor AsRows(const SourceTensor& vector, int64_t rows, const Map& map) {
  const int64_t count = vector.shape.back();
  const int64_t columns = count / rows;
  return Remade(vector, {rows, columns},
                [stored = vector.rows.read_row, count, columns, map](int64_t row, float* out) {
                  std::vector<float> all(static_cast<size_t>(count));
                  stored(0, all.data());
                  std::transform(all.begin() + row * columns, all.begin() + (row + 1) * columns,
                                 out, map);
                });
}

SourceTensor OfMamba(SourceTensor tensor, std::string_view part, const DeltaNetConfig& net) {
  const auto same = [](float x) { return x; };
  if (part == "A_log") {
    SourceTensor rates =
        AsRows(tensor, net.value_heads, [](float logarithm) { return -scalar::Exp(logarithm); });
    rates.name.resize(rates.name.size() - std::string_view("_log").size());
    return rates;
  }
  if (part == "D") return AsRows(tensor, net.value_heads, same);
  if (part == "norm.weight") return AsRows(tensor, net.key_heads, same);
  if (part == "conv1d.weight") return ConvolutionTaps(tensor);
  return tensor;
}

}  // namespace

std::vector<SourceTensor> GgufHybrids(std::vector<SourceTensor> tensors,
                                      const ModelConfig& config) {
  constexpr std::string_view kMamba = ".mamba.";
  for (SourceTensor& tensor : tensors) {
    const size_t at = tensor.name.find(kMamba);
    if (at != std::string::npos) {
      const std::string part = tensor.name.substr(at + kMamba.size());
      tensor = OfMamba(std::move(tensor), part, config.delta_net);
    } else if (tensor.name.ends_with(".conv.conv.weight")) {
      tensor = ConvolutionTaps(tensor);
    }
  }
  return tensors;
}

}  // namespace kvasir
