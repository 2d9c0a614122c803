#include "kvasir/model/expert_mlp.h"

#include <cmath>
#include <utility>

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

// Where one family keeps its mixture, under a layer's prefix.
struct Names {
  const char* router;
  const char* experts;  // Hugging Face: fused, or one tensor for each
  const char* stacked;  // MLX
};
constexpr Names kPlain = {"mlp.gate.weight", "mlp.experts", "mlp.switch_mlp"};
constexpr Names kWithRouterNorm = {"router.proj.weight", "experts", "experts.switch_glu"};

enum class Part { kGate, kUp, kDown };

// Finds the matrices of experts in whichever form the source has them.
class ExpertLoader {
 public:
  ExpertLoader(const DecoderSpec& spec, const std::string& prefix, const Names& names,
               WeightSource& source)
      : count_(spec.experts.count),
        hidden_(spec.hidden_size),
        intermediate_(spec.experts.intermediate_size),
        module_(prefix + names.experts),
        stacked_(prefix + names.stacked),
        source_(source) {}

  Result<std::unique_ptr<const WeightMatrix>> Load(int expert, Part part) const {
    const std::string name = part == Part::kGate ? "gate_proj"
                             : part == Part::kUp ? "up_proj"
                                                 : "down_proj";
    const int64_t outputs = part == Part::kDown ? hidden_ : intermediate_;
    const int64_t inputs = part == Part::kDown ? intermediate_ : hidden_;
    const std::string fused = module_ + ".gate_up_proj";
    if (part != Part::kDown && source_.Has(fused)) {
      const int64_t begin = (2 * expert + (part == Part::kUp ? 1 : 0)) * outputs;
      return source_.Rows({fused, {count_, 2 * outputs, inputs}, begin, outputs});
    }
    for (const std::string& stacked : {module_ + "." + name, stacked_ + "." + name + ".weight"}) {
      if (!source_.Has(stacked)) continue;
      return source_.Rows({stacked, {count_, outputs, inputs}, expert * outputs, outputs});
    }
    return source_.Matrix(module_ + "." + std::to_string(expert) + "." + name + ".weight", outputs,
                          inputs);
  }

 private:
  const int64_t count_;
  const int64_t hidden_;
  const int64_t intermediate_;
  const std::string module_;
  const std::string stacked_;
  WeightSource& source_;
};

}  // namespace

Result<ExpertMlp> ExpertMlp::Load(const DecoderSpec& spec, const std::string& prefix,
                                  WeightSource& source) {
  const ExpertsSpec& experts = spec.experts;
  const Names& names = experts.has_router_norm ? kWithRouterNorm : kPlain;
  ExpertMlp mlp;
  KVASIR_TRY(mlp.router_,
             source.ExactMatrix(prefix + names.router, experts.count, spec.hidden_size));
  if (experts.has_router_norm) {
    KVASIR_TRY(mlp.router_norm_, source.Vector(prefix + "router.scale", spec.hidden_size, 0));
    const double root = std::sqrt(static_cast<double>(spec.hidden_size));
    for (float& weight : mlp.router_norm_) weight = static_cast<float>(weight / root);
    KVASIR_TRY(mlp.expert_scales_,
               source.Vector(prefix + "router.per_expert_scale", experts.count, 0));
  }
  const ExpertLoader loader(spec, prefix, names, source);
  for (int i = 0; i < experts.count; ++i) {
    for (const Part part : {Part::kGate, Part::kUp, Part::kDown}) {
      KVASIR_TRY(auto matrix, loader.Load(i, part));
      mlp.matrices_.push_back(std::move(matrix));
    }
    const auto* const loaded = &mlp.matrices_[3 * static_cast<size_t>(i)];
    mlp.experts_.push_back({loaded[0].get(), loaded[1].get(), loaded[2].get()});
  }
  return mlp;
}

void ExpertMlp::Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                    ConstFloatRows hidden, ConstFloatRows x, FloatRows out) const {
  ConstFloatRows input = x;
  if (!router_norm_.empty()) {
    const FloatRows normed = workspace.Rows(Buffer::kRouterInput, x.rows, spec.hidden_size);
    backend.RmsNorm(hidden, router_norm_, spec.norm_eps, normed);
    input = normed;
  }
  const FloatRows scores = workspace.Rows(Buffer::kRouterScores, x.rows, spec.experts.count);
  const MatmulJob route[] = {{router_.get(), nullptr, scores}};
  backend.Matmul(input, route);
  const int64_t pairs = x.rows * spec.experts.per_token;
  const RouteArgs routing = {.scores = scores,
                             .per_row = spec.experts.per_token,
                             .normalizes = spec.experts.normalizes_weights,
                             .expert_scales = expert_scales_,
                             .chosen = workspace.Chosen(pairs),
                             .weights = workspace.ChosenWeights(pairs)};
  backend.Route(routing);
  backend.Experts({.experts = experts_,
                   .activation = spec.activation,
                   .x = x,
                   .per_row = spec.experts.per_token,
                   .chosen = routing.chosen,
                   .weights = routing.weights,
                   .out = out});
}

}  // namespace kvasir
