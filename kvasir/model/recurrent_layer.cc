#include "kvasir/model/recurrent_layer.h"

#include "kvasir/model/delta_net.h"
#include "kvasir/model/mamba.h"
#include "kvasir/model/short_conv.h"

namespace kvasir {

Result<std::unique_ptr<const RecurrentLayer>> RecurrentLayer::Load(const DecoderSpec& spec,
                                                                   const std::string& prefix,
                                                                   WeightSource& source) {
  if (spec.short_conv.width > 0) return ShortConv::Load(spec, prefix, source);
  if (spec.delta_net.rule == DeltaShape::Rule::kMamba) return Mamba::Load(spec, prefix, source);
  return DeltaNet::Load(spec, prefix, source);
}

RecurrentRow RecurrentRowOf(const DecoderSpec& spec) {
  // kMixed, kConvolved.
  if (spec.short_conv.width > 0) {
    return {.attended = spec.hidden_size, .gate = spec.hidden_size, .others = 2 * spec.hidden_size};
  }
  const DeltaShape& shape = spec.delta_net;
  if (shape.value_heads == 0) return {};
  // Also kDeltaSteps, kDeltaDecays; kDeltaGates.
  const int64_t values = shape.value_heads * shape.value_dim;
  return {.attended = values,
          .gate = values,
          .others = 2 * shape.channels() + 4 * int64_t{shape.value_heads}};
}

}  // namespace kvasir
