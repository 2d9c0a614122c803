#include "kvasir/model/checkpoint_names.h"

#include <array>
#include <string_view>
#include <utility>

namespace kvasir {
namespace {

// Parts of a name, with the dots around them.
struct Renaming {
  std::string_view checkpoint;
  std::string_view decoder;
};
constexpr std::array<Renaming, 9> kLfm2 = {{
    {".operator_norm.", ".input_layernorm."},
    {".ffn_norm.", ".post_attention_layernorm."},
    {".self_attn.out_proj.", ".self_attn.o_proj."},
    {".self_attn.q_layernorm.", ".self_attn.q_norm."},
    {".self_attn.k_layernorm.", ".self_attn.k_norm."},
    {".feed_forward.", ".mlp."},
    {".w1.", ".gate_proj."},
    {".w2.", ".down_proj."},
    {".w3.", ".up_proj."},
}};
constexpr Renaming kLfm2Norm = {"embedding_norm.", "norm."};

void Replace(std::string_view from, std::string_view to, std::string* name) {
  const size_t at = name->find(from);
  if (at != std::string::npos) name->replace(at, from.size(), to);
}

std::string Renamed(std::string name, std::string_view Renaming::*from,
                    std::string_view Renaming::*to) {
  const std::string_view norm = kLfm2Norm.*from;
  if (name.starts_with(norm)) return name.replace(0, norm.size(), kLfm2Norm.*to);
  for (const Renaming& renaming : kLfm2) Replace(renaming.*from, renaming.*to, &name);
  return name;
}

}  // namespace

std::string DecoderTensorName(ModelFamily family, std::string name) {
  if (family != ModelFamily::kLfm2) return name;
  return Renamed(std::move(name), &Renaming::checkpoint, &Renaming::decoder);
}

std::string CheckpointTensorName(ModelFamily family, std::string name) {
  if (family != ModelFamily::kLfm2) return name;
  return Renamed(std::move(name), &Renaming::decoder, &Renaming::checkpoint);
}

}  // namespace kvasir
