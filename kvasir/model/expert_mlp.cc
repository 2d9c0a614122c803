#include "kvasir/model/expert_mlp.h"

#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

// Where one family keeps its mixture, under a layer's prefix.
struct Names {
  const char* router;
  const char* experts;  // Hugging Face: fused, or one tensor for each
  const char* stacked;  // MLX
  bool has_each;        // experts are tensors of their own in some checkpoints, or in ours
  // What published checkpoints call gates above ups of all experts, and downs, where transformers
  // calls them otherwise; or null.
  const char* published = nullptr;
  const char* published_down = nullptr;
  const char* published_router = nullptr;
};
constexpr Names kPlain = {"mlp.gate", "mlp.experts", "mlp.switch_mlp", true};
constexpr Names kWithRouterNorm = {"router.proj", "experts", "experts.switch_glu", false};
constexpr Names kWithBiases = {"mlp.router", "mlp.experts", "mlp.experts", true};
constexpr Names kWithSharedMlp = {"block_sparse_moe.router",
                                  "block_sparse_moe.experts",
                                  "block_sparse_moe.switch_mlp",
                                  false,
                                  "block_sparse_moe.input_linear.weight",
                                  "block_sparse_moe.output_linear.weight",
                                  "block_sparse_moe.router.layer"};

const Names& NamesOf(const DecoderSpec& spec) {
  if (spec.mlp_names == DecoderSpec::MlpNames::kShared) return kWithSharedMlp;
  if (spec.experts.has_router_norm) return kWithRouterNorm;
  return spec.experts.has_biases ? kWithBiases : kPlain;
}

enum class Part { kGate, kUp, kDown };
constexpr Part kParts[] = {Part::kGate, Part::kUp, Part::kDown};

std::string NameOf(Part part) {
  return part == Part::kGate ? "gate_proj" : part == Part::kUp ? "up_proj" : "down_proj";
}

// Finds the matrices of experts in whichever form the source has them.
class ExpertLoader {
 public:
  ExpertLoader(const DecoderSpec& spec, const std::string& prefix, WeightSource& source)
      : has_biases_(spec.experts.has_biases),
        names_(NamesOf(spec)),
        count_(spec.experts.count),
        hidden_(spec.hidden_size),
        intermediate_(spec.experts.intermediate_size),
        prefix_(prefix),
        module_(prefix + names_.experts),
        stacked_(prefix + names_.stacked),
        source_(source) {}

  Result<std::unique_ptr<const WeightMatrix>> Load(int expert, Part part) const {
    const std::string name = NameOf(part);
    const int64_t inputs = part == Part::kDown ? intermediate_ : hidden_;
    const int64_t outputs = OutputsOf(part);
    const std::string alone = module_ + "." + std::to_string(expert) + "." + name + ".weight";
    if (has_biases_) {
      if (const auto slice = SliceWithBiases(expert, part)) {
        MatrixSlice named = *slice;
        named.alone = alone;
        return source_.Rows(named);
      }
    }
    for (const std::string& fused : {Published(names_.published), module_ + ".gate_up_proj"}) {
      if (part == Part::kDown || fused.empty() || !source_.Has(fused)) continue;
      const int64_t begin = (2 * expert + (part == Part::kUp ? 1 : 0)) * outputs;
      return source_.Rows({.name = fused,
                           .shape = {count_, 2 * outputs, inputs},
                           .first_row = begin,
                           .rows = outputs});
    }
    const std::string published = part == Part::kDown ? Published(names_.published_down) : "";
    for (const std::string& stacked :
         {published, module_ + "." + name, stacked_ + "." + name + ".weight"}) {
      if (stacked.empty() || !source_.Has(stacked)) continue;
      return source_.Rows({.name = stacked,
                           .shape = {count_, outputs, inputs},
                           .first_row = expert * outputs,
                           .rows = outputs,
                           .alone = names_.has_each ? alone : std::string()});
    }
    return source_.Matrix(alone, outputs, inputs);
  }

  // [experts, outputs of the part]
  Result<std::vector<float>> Biases(Part part) const {
    const int64_t outputs = OutputsOf(part);
    const std::string stacked = module_ + "." + NameOf(part) + ".bias";
    if (source_.Has(stacked)) return source_.Numbers(stacked, {count_, outputs});
    if (part == Part::kDown) return source_.Numbers(module_ + ".down_proj_bias", {count_, outputs});
    KVASIR_TRY(const std::vector<float> both,
               source_.Numbers(module_ + ".gate_up_proj_bias", {count_, 2 * outputs}));
    std::vector<float> biases;
    for (size_t i = part == Part::kUp ? 1 : 0; i < both.size(); i += 2) biases.push_back(both[i]);
    return biases;
  }

 private:
  std::string Published(const char* name) const {
    return name == nullptr ? std::string() : prefix_ + name;
  }

  int64_t OutputsOf(Part part) const { return part == Part::kDown ? hidden_ : intermediate_; }

  // Gates and ups in turns, quantized, or dense with inputs before outputs. Nothing where neither
  // is what the source has.
  std::optional<MatrixSlice> SliceWithBiases(int64_t expert, Part part) const {
    const std::string in_turns = module_ + ".gate_up_proj";
    const std::string quantized = in_turns + ".weight";
    const std::string down = module_ + ".down_proj";
    const int64_t of_both = 2 * intermediate_;
    MatrixSlice slice = {.rows = OutputsOf(part)};
    if (part == Part::kDown) {
      if (!source_.Has(down)) return std::nullopt;
      slice.name = down;
      slice.shape = {count_, hidden_, intermediate_};
      slice.first_row = expert * hidden_;
      slice.is_transposed = true;
      return slice;
    }
    const bool is_dense = source_.Has(in_turns);
    if (!is_dense && !source_.Has(quantized)) return std::nullopt;
    slice.name = is_dense ? in_turns : quantized;
    slice.shape = {count_, of_both, hidden_};
    slice.first_row = expert * of_both + (part == Part::kUp ? 1 : 0);
    slice.row_step = 2;
    slice.is_transposed = is_dense;
    return slice;
  }

  const bool has_biases_;
  const Names& names_;
  const int64_t count_;
  const int64_t hidden_;
  const int64_t intermediate_;
  const std::string prefix_;
  const std::string module_;
  const std::string stacked_;
  WeightSource& source_;
};

}  // namespace

Result<ExpertMlp> ExpertMlp::Load(const DecoderSpec& spec, const std::string& prefix,
                                  WeightSource& source) {
  const ExpertsSpec& experts = spec.experts;
  const Names& names = NamesOf(spec);
  std::string router = prefix + names.router;
  if (names.published_router != nullptr && !source.Has(router + ".weight")) {
    router = prefix + names.published_router;
  }
  ExpertMlp mlp;
  KVASIR_TRY(mlp.router_, source.ExactMatrix(router + ".weight", experts.count, spec.hidden_size));
  if (experts.has_router_norm) {
    KVASIR_TRY(mlp.router_norm_, source.Vector(prefix + "router.scale", spec.hidden_size, 0));
    const double root = std::sqrt(static_cast<double>(spec.hidden_size));
    for (float& weight : mlp.router_norm_) weight = static_cast<float>(weight / root);
    KVASIR_TRY(mlp.expert_scales_,
               source.Vector(prefix + "router.per_expert_scale", experts.count, 0));
  }
  const ExpertLoader loader(spec, prefix, source);
  if (experts.has_choice_biases) {
    const char* const name =
        experts.has_deepseek_names ? "mlp.gate.e_score_correction_bias" : "mlp.expert_bias";
    KVASIR_TRY(mlp.choice_biases_, source.Vector(prefix + name, experts.count, 0));
  }
  if (experts.has_biases) {
    KVASIR_TRY(mlp.router_bias_, source.Vector(router + ".bias", experts.count, 0));
    for (size_t i = 0; i < std::size(kParts); ++i) {
      KVASIR_TRY(mlp.biases_[i], loader.Biases(kParts[i]));
    }
  }
  for (int i = 0; i < experts.count; ++i) {
    for (const Part part : kParts) {
      KVASIR_TRY(auto matrix, loader.Load(i, part));
      mlp.matrices_.push_back(std::move(matrix));
    }
    const auto* const loaded = &mlp.matrices_[3 * static_cast<size_t>(i)];
    const auto biases = [&](size_t part, int64_t outputs) {
      return experts.has_biases ? mlp.biases_[part].data() + i * outputs : nullptr;
    };
    mlp.experts_.push_back({.gate = loaded[0].get(),
                            .up = loaded[1].get(),
                            .down = loaded[2].get(),
                            .gate_bias = biases(0, experts.intermediate_size),
                            .up_bias = biases(1, experts.intermediate_size),
                            .down_bias = biases(2, spec.hidden_size)});
  }
  if (experts.shared_intermediate_size > 0) {
    KVASIR_TRY_OK(mlp.LoadShared(spec, prefix, source));
  }
  return mlp;
}

Status ExpertMlp::LoadShared(const DecoderSpec& spec, const std::string& prefix,
                             WeightSource& source) {
  const int64_t hidden = spec.hidden_size;
  const int64_t size = spec.experts.shared_intermediate_size;
  const std::string expert =
      prefix + (spec.experts.has_deepseek_names ? "mlp.shared_experts." : "mlp.shared_expert.");
  const std::string both = prefix + "shared_mlp.input_linear.weight";
  if (spec.experts.has_shared_gate) {
    KVASIR_TRY(shared_.switch_,
               source.ExactMatrix(prefix + "mlp.shared_expert_gate.weight", 1, hidden));
  }
  if (spec.mlp_names == DecoderSpec::MlpNames::kShared && source.Has(both)) {
    MatrixSlice slice = {.name = both, .shape = {2 * size, hidden}, .first_row = 0, .rows = size};
    KVASIR_TRY(shared_.gate, source.Rows(slice));
    slice.first_row = size;
    KVASIR_TRY(shared_.up, source.Rows(slice));
    KVASIR_TRY(shared_.down,
               source.Matrix(prefix + "shared_mlp.output_linear.weight", hidden, size));
    return {};
  }
  KVASIR_TRY(shared_.gate, source.Matrix(expert + "gate_proj.weight", size, hidden));
  KVASIR_TRY(shared_.up, source.Matrix(expert + "up_proj.weight", size, hidden));
  KVASIR_TRY(shared_.down, source.Matrix(expert + "down_proj.weight", hidden, size));
  return {};
}

void ExpertMlp::AddShared(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                          ConstFloatRows x, FloatRows out) const {
  const int64_t size = spec.experts.shared_intermediate_size;
  const FloatRows gate = workspace.Rows(Buffer::kGate, x.rows, size);
  const FloatRows up = workspace.Rows(Buffer::kUp, x.rows, size);
  const FloatRows share = workspace.Rows(Buffer::kSharedGate, x.rows, 1);
  const MatmulJob in[] = {{shared_.gate.get(), nullptr, gate},
                          {shared_.up.get(), nullptr, up},
                          {shared_.switch_.get(), nullptr, share}};
  const bool has_gate = shared_.switch_ != nullptr;
  backend.Matmul(x, std::span(in).first(has_gate ? 3 : 2));
  backend.Gate(spec.activation, gate, up);
  const FloatRows shared = workspace.Rows(Buffer::kExperts, x.rows, spec.hidden_size);
  KVASIR_CHECK(out.data != shared.data);
  const MatmulJob back[] = {{shared_.down.get(), nullptr, shared}};
  backend.Matmul(gate, back);
  if (has_gate) backend.GateRows(shared, share);
  backend.Add(out, shared);
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
  const float* const bias = router_bias_.empty() ? nullptr : router_bias_.data();
  const MatmulJob route[] = {{router_.get(), bias, scores}};
  backend.Matmul(input, route);
  const int64_t pairs = x.rows * spec.experts.per_token;
  const RouteArgs routing = {.scores = scores,
                             .per_row = spec.experts.per_token,
                             .kind = spec.experts.scores,
                             .choice_biases = choice_biases_,
                             .groups = spec.experts.groups,
                             .groups_per_row = spec.experts.groups_per_token,
                             .normalizes = spec.experts.normalizes_weights,
                             .sum_eps = spec.experts.weight_sum_eps,
                             .expert_scales = expert_scales_,
                             .scale = spec.experts.weight_scale,
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
  if (shared_.down != nullptr) AddShared(spec, backend, workspace, x, out);
}

}  // namespace kvasir
