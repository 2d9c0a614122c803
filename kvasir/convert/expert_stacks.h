// Experts as one tensor for each projection, as GGUF files and quantized MLX folders have them.
// Deliberately only other views of a source's tensors: nothing is copied or decoded here.
#ifndef KVASIR_CONVERT_EXPERT_STACKS_H_
#define KVASIR_CONVERT_EXPERT_STACKS_H_

#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"

namespace kvasir {

// Experts that a checkpoint keeps apart ("X.mlp.experts.3.up_proj.weight" [outputs, inputs])
// become one tensor ("X.mlp.switch_mlp.up_proj.weight" [experts, outputs, inputs]), where the
// first of them was, and LFM2's ("X.feed_forward.experts.3.w3.weight") "X.feed_forward.switch_mlp";
// all other tensors stay. ERRORS: kCorrupt where one is missing or has another
// shape or type than the others, naming it.
Result<std::vector<SourceTensor>> StackExperts(const std::vector<SourceTensor>& tensors);

// "X.experts.gate_up_proj" [experts, gates and ups, inputs] and "X.experts.down_proj" [experts,
// inputs, gates] become "X.experts.switch_glu.gate_proj.weight", "...up_proj.weight" and
// "...down_proj.weight", and "X.mlp.experts.gate_up_proj" the same of "X.mlp.switch_mlp". Stacks of
// other shapes (inputs before outputs) stay as they are, and so do those of which X, with ".mlp",
// does not end with `owner_end`.
std::vector<SourceTensor> SplitGatesAndUps(std::vector<SourceTensor> tensors,
                                           std::string_view owner_end = "");

// "X.feed_forward.w1.weight" of LFM2's dense layers becomes "X.feed_forward.gate_proj.weight", and
// so on, where others have experts, as mlx-lm calls them then.
std::vector<SourceTensor> NameLfm2Mlps(std::vector<SourceTensor> tensors);

// "X.shared_mlp.input_linear.weight" [gates and ups, inputs] and
// "X.shared_mlp.output_linear.weight" of Granite 4's dense models become "X.mlp.gate_proj.weight",
// "...up_proj.weight" and "...down_proj.weight". Of models that have experts besides
// (block_sparse_moe) X is followed by `beside_experts`; without one they keep their names, as in
// mlx-lm.
std::vector<SourceTensor> SplitSharedMlp(std::vector<SourceTensor> tensors,
                                         std::string_view beside_experts = "");

// "X.block_sparse_moe.input_linear.weight" [experts, gates and ups, inputs] and
// "X.block_sparse_moe.output_linear.weight" of Granite 4 become
// "X.block_sparse_moe.switch_mlp.gate_proj.weight", "...up_proj.weight" and "...down_proj.weight".
std::vector<SourceTensor> SplitGraniteExperts(std::vector<SourceTensor> tensors);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_EXPERT_STACKS_H_
