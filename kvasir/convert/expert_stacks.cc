#include "kvasir/convert/expert_stacks.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/convert/remade_tensor.h"

namespace kvasir {
namespace {

constexpr std::string_view kLfm2Mlp = ".feed_forward";
constexpr std::string_view kGraniteExperts = ".block_sparse_moe.";

// ".w1.weight" of LFM2 is ".gate_proj.weight"; others stay.
std::string AsMlx(const std::string& part) {
  for (const auto& [name, other] :
       {std::pair{".w1.weight", ".gate_proj.weight"}, std::pair{".w2.weight", ".down_proj.weight"},
        std::pair{".w3.weight", ".up_proj.weight"}}) {
    if (part == name) return other;
  }
  return part;
}

struct ExpertName {
  std::string stacked;  // the name of all experts' tensor
  int64_t expert = -1;  // -1: no expert's tensor
};

// "layers.0.mlp.experts.3.up_proj.weight" is part 3 of "layers.0.mlp.switch_mlp.up_proj.weight".
ExpertName SplitExpert(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  constexpr size_t kMostDigits = 5;
  const size_t at = name.find(kExperts);
  const std::string owner = name.substr(0, at);
  if (!owner.ends_with(".mlp") && !owner.ends_with(kLfm2Mlp)) return {};
  if (at == std::string::npos || !name.ends_with(".weight")) return {};
  const size_t number = at + kExperts.size();
  const size_t end = name.find('.', number);
  if (end == std::string::npos || end == number || end - number > kMostDigits) return {};
  if (name[number] == '0' && end - number > 1) return {};  // "03" is no name of the third
  int64_t expert = 0;
  for (size_t i = number; i < end; ++i) {
    if (name[i] < '0' || name[i] > '9') return {};
    expert = 10 * expert + (name[i] - '0');
  }
  return {owner + ".switch_mlp" + AsMlx(name.substr(end)), expert};
}

using Parts = std::map<int64_t, const SourceTensor*>;

// REQUIRES: parts are not empty.
Result<SourceTensor> Stacked(std::string name, const Parts& parts) {
  const SourceTensor& first = *parts.begin()->second;
  std::vector<WeightTensor> experts;
  SourceTensor stack = Remade(first, first.shape, nullptr);
  stack.name = std::move(name);
  stack.rows.source.clear();
  for (const auto& [expert, part] : parts) {
    if (expert != static_cast<int64_t>(experts.size())) {
      return {ErrorCode::kCorrupt, "tensor '" + stack.name + "' of expert " +
                                       std::to_string(experts.size()) + " is missing"};
    }
    if (part->shape != first.shape || part->shape.size() != 2 || part->dtype != first.dtype ||
        part->offset != first.offset || !part->rows.read_row) {
      return {
          ErrorCode::kCorrupt,
          "tensor '" + part->name + "' is no matrix of the shape and type of the other experts'"};
    }
    experts.push_back(part->rows);
    stack.rows.source.insert(stack.rows.source.end(), part->rows.source.begin(),
                             part->rows.source.end());
  }
  stack.shape.insert(stack.shape.begin(), static_cast<int64_t>(experts.size()));
  stack.rows.shape = stack.shape;
  stack.rows.read_row = [experts = std::move(experts), rows = first.shape[0]](int64_t row,
                                                                              float* out) {
    experts[static_cast<size_t>(row / rows)].read_row(row % rows, out);
  };
  return stack;
}

// Of each expert's rows `count` from `first` on. REQUIRES: they lie within them.
SourceTensor PartOfStack(const SourceTensor& stack, std::string name, int64_t first,
                         int64_t count) {
  SourceTensor part = stack;
  if (count != stack.shape[1]) {
    part = Remade(
        stack, {stack.shape[0], count, stack.shape[2]},
        [whole = stack.rows.read_row, rows = stack.shape[1], first, count](
            int64_t row, float* out) { whole(row / count * rows + first + row % count, out); });
  }
  part.name = std::move(name);
  return part;
}

// `count` rows of a matrix from `first` on. REQUIRES: they lie within it.
SourceTensor PartOfMatrix(const SourceTensor& matrix, std::string name, int64_t first,
                          int64_t count) {
  const WeightTensor rows = RowsOf(matrix.rows, first, count);
  SourceTensor part = Remade(matrix, {count, matrix.shape[1]}, rows.read_row);
  part.rows.source = rows.source;
  part.name = std::move(name);
  return part;
}

}  // namespace

Result<std::vector<SourceTensor>> StackExperts(const std::vector<SourceTensor>& tensors) {
  std::map<std::string, Parts> stacks;
  for (const SourceTensor& tensor : tensors) {
    const ExpertName name = SplitExpert(tensor.name);
    if (name.expert >= 0) stacks[name.stacked][name.expert] = &tensor;
  }
  std::vector<SourceTensor> result;
  for (const SourceTensor& tensor : tensors) {
    const ExpertName name = SplitExpert(tensor.name);
    if (name.expert < 0) {
      result.push_back(tensor);
      continue;
    }
    const auto stack = stacks.find(name.stacked);
    if (stack == stacks.end()) continue;  // done with its first expert
    KVASIR_TRY(SourceTensor stacked, Stacked(name.stacked, stack->second));
    result.push_back(std::move(stacked));
    stacks.erase(stack);
  }
  return result;
}

std::vector<SourceTensor> SplitGatesAndUps(std::vector<SourceTensor> tensors,
                                           std::string_view owner_end) {
  constexpr std::string_view kBoth = ".experts.gate_up_proj";
  constexpr std::string_view kDown = ".experts.down_proj";
  std::map<std::string, std::vector<int64_t>> stacks;  // shapes by name
  for (const SourceTensor& tensor : tensors) {
    if (tensor.shape.size() == 3 && tensor.rows.read_row) stacks[tensor.name] = tensor.shape;
  }
  const auto before = [](const SourceTensor& tensor, std::string_view end) {
    return tensor.name.substr(0, tensor.name.size() - end.size());
  };
  const auto is_split = [&](const SourceTensor& tensor, std::string_view end) {
    if (!tensor.name.ends_with(end) || !before(tensor, end).ends_with(owner_end)) return false;
    const auto both = stacks.find(before(tensor, end).append(kBoth));
    const auto down = stacks.find(before(tensor, end).append(kDown));
    if (both == stacks.end() || down == stacks.end()) return false;
    const std::vector<int64_t>& to = down->second;
    return both->second == std::vector<int64_t>{to[0], 2 * to[2], to[1]};
  };
  std::vector<SourceTensor> result;
  for (SourceTensor& tensor : tensors) {
    const auto named = [&](std::string_view end, const char* part) {
      std::string owner = before(tensor, end);
      constexpr std::string_view kMlp = ".mlp";
      return owner.append(owner.ends_with(kMlp) ? ".switch_mlp." : ".experts.switch_glu.")
          .append(part)
          .append(".weight");
    };
    if (is_split(tensor, kBoth)) {
      const int64_t half = tensor.shape[1] / 2;
      result.push_back(PartOfStack(tensor, named(kBoth, "gate_proj"), 0, half));
      result.push_back(PartOfStack(tensor, named(kBoth, "up_proj"), half, half));
    } else if (is_split(tensor, kDown)) {
      result.push_back(PartOfStack(tensor, named(kDown, "down_proj"), 0, tensor.shape[1]));
    } else {
      result.push_back(std::move(tensor));
    }
  }
  return result;
}

std::vector<SourceTensor> NameLfm2Mlps(std::vector<SourceTensor> tensors) {
  const auto is_router = [](const SourceTensor& tensor) {
    return tensor.name.ends_with(".feed_forward.gate.weight");
  };
  if (std::ranges::none_of(tensors, is_router)) return tensors;
  for (SourceTensor& tensor : tensors) {
    const size_t at = tensor.name.find(kLfm2Mlp);
    if (at == std::string::npos) continue;
    const size_t end = at + kLfm2Mlp.size();
    tensor.name = tensor.name.substr(0, end) + AsMlx(tensor.name.substr(end));
  }
  return tensors;
}

std::vector<SourceTensor> SplitSharedMlp(std::vector<SourceTensor> tensors,
                                         std::string_view beside_experts) {
  constexpr std::string_view kIn = ".shared_mlp.input_linear.weight";
  constexpr std::string_view kOut = ".shared_mlp.output_linear.weight";
  const auto is_expert = [](const SourceTensor& tensor) {
    return tensor.name.find(kGraniteExperts) != std::string::npos;
  };
  const bool has_experts = std::ranges::any_of(tensors, is_expert);
  if (has_experts && beside_experts.empty()) return tensors;
  const std::string owner(has_experts ? beside_experts : "mlp");
  std::vector<SourceTensor> result;
  for (SourceTensor& tensor : tensors) {
    const auto named = [&](std::string_view end, const char* part) {
      return tensor.name.substr(0, tensor.name.size() - end.size()) + "." + owner + "." + part +
             ".weight";
    };
    const bool is_pair = tensor.shape.size() == 2 && tensor.shape[0] % 2 == 0;
    if (tensor.name.ends_with(kIn) && is_pair && tensor.rows.read_row) {
      const int64_t half = tensor.shape[0] / 2;
      result.push_back(PartOfMatrix(tensor, named(kIn, "gate_proj"), 0, half));
      result.push_back(PartOfMatrix(tensor, named(kIn, "up_proj"), half, half));
      continue;
    }
    if (tensor.name.ends_with(kOut)) tensor.name = named(kOut, "down_proj");
    result.push_back(std::move(tensor));
  }
  return result;
}

std::vector<SourceTensor> SplitGraniteExperts(std::vector<SourceTensor> tensors) {
  constexpr std::string_view kIn = ".block_sparse_moe.input_linear.weight";
  constexpr std::string_view kOut = ".block_sparse_moe.output_linear.weight";
  std::vector<SourceTensor> result;
  for (SourceTensor& tensor : tensors) {
    const auto named = [&](std::string_view end, const char* part) {
      return tensor.name.substr(0, tensor.name.size() - end.size()) +
             ".block_sparse_moe.switch_mlp." + part + ".weight";
    };
    const bool is_stack = tensor.shape.size() == 3 && tensor.rows.read_row;
    if (tensor.name.ends_with(kIn) && is_stack && tensor.shape[1] % 2 == 0) {
      const int64_t half = tensor.shape[1] / 2;
      result.push_back(PartOfStack(tensor, named(kIn, "gate_proj"), 0, half));
      result.push_back(PartOfStack(tensor, named(kIn, "up_proj"), half, half));
      continue;
    }
    if (tensor.name.ends_with(kOut) && is_stack) tensor.name = named(kOut, "down_proj");
    result.push_back(std::move(tensor));
  }
  return result;
}

}  // namespace kvasir
