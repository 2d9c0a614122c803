#include "kvasir/convert/gguf_hybrids.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/convert/remade_tensor.h"

namespace kvasir {
namespace {

// As many rows, of whatever shape the numbers are stored in.
SourceTensor AsRows(const SourceTensor& tensor, int64_t rows) {
  return Reshaped(tensor, rows, RowCount(tensor.shape) * tensor.shape.back() / rows);
}

SourceTensor OfMamba(SourceTensor tensor, std::string_view part, const DeltaNetConfig& net) {
  if (part == "A_log") {
    SourceTensor rates = DecayRates(AsRows(tensor, net.value_heads));
    rates.name.resize(rates.name.size() - std::string_view("_log").size());
    return rates;
  }
  if (part == "D") return AsRows(tensor, net.value_heads);
  if (part == "norm.weight") return AsRows(tensor, net.key_heads);
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
