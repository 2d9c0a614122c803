#include "kvasir/model/per_layer_inputs.h"

#include <cmath>

namespace kvasir {
namespace {

int64_t AllLayers(const DecoderSpec& spec) {
  return static_cast<int64_t>(spec.layers.size()) * spec.per_layer_size;
}

float RootOf(int64_t size) { return static_cast<float>(std::sqrt(static_cast<double>(size))); }

}  // namespace

Result<PerLayerInputs> PerLayerInputs::Load(const DecoderSpec& spec, WeightSource& source) {
  PerLayerInputs inputs;
  KVASIR_TRY(inputs.table_,
             source.Matrix("embed_tokens_per_layer.weight", spec.vocab_size, AllLayers(spec)));
  KVASIR_TRY(inputs.projection_,
             source.Matrix("per_layer_model_projection.weight", AllLayers(spec), spec.hidden_size));
  KVASIR_TRY(inputs.norm_, source.Vector("per_layer_projection_norm.weight", spec.per_layer_size,
                                         spec.norm_offset));
  return inputs;
}

void PerLayerInputs::Compute(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                             std::span<const Token> tokens, ConstFloatRows embedded) const {
  const FloatRows context =
      workspace.Rows(Workspace::Buffer::kPerLayerContext, embedded.rows, AllLayers(spec));
  const MatmulJob project[] = {{projection_.get(), nullptr, context}};
  backend.Matmul(embedded, project);
  backend.Scale(context, 1 / RootOf(spec.hidden_size));
  backend.RmsNorm(context, norm_, spec.norm_eps, context);
  const FloatRows out = AllPerLayerInputs(spec, workspace, embedded.rows);
  backend.Embed(*table_, tokens, RootOf(spec.per_layer_size), out);
  backend.Add(out, context);
  backend.Scale(out, 1 / RootOf(2));
}

FloatRows AllPerLayerInputs(const DecoderSpec& spec, Workspace& workspace, int64_t rows) {
  return workspace.Rows(Workspace::Buffer::kPerLayer, rows, AllLayers(spec));
}

FloatRows PerLayerInput(const DecoderSpec& spec, Workspace& workspace, int64_t rows, int layer) {
  const FloatRows all = AllPerLayerInputs(spec, workspace, rows);
  return {all.data + layer * spec.per_layer_size, rows, spec.per_layer_size, all.stride};
}

}  // namespace kvasir
