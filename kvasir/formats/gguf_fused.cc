// GgufFile's tensors "blk.N.attn_qkv": the rows of queries, keys and values in one, which
// llama.cpp's converter writes when it is asked to (--fuse-qkv).
// Deliberately only where a decoder asks for three: in other architectures the name is their own.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/formats/gguf.h"

namespace kvasir {
namespace {

constexpr std::array<std::string_view, 13> kThreeApart = {
    "llama",   "qwen2",   "qwen3",    "qwen3moe", "gemma2", "gemma3", "gpt-oss",
    "smollm3", "granite", "mistral3", "olmo2",    "glm4",   "glm4moe"};
constexpr std::string_view kFused = ".attn_qkv.";
constexpr std::array<std::string_view, 3> kParts = {".attn_q.", ".attn_k.", ".attn_v."};

// The rows of each part.
Result<std::array<int64_t, 3>> RowsOf(const GgufMetadata& metadata,
                                      const std::string& architecture) {
  const std::string attention = architecture + ".attention.";
  KVASIR_TRY(const int64_t heads, metadata.SameInt(attention + "head_count"));
  int64_t kv_heads = heads;
  if (metadata.Has(attention + "head_count_kv")) {
    KVASIR_TRY(kv_heads, metadata.SameInt(attention + "head_count_kv"));
  }
  KVASIR_TRY(const int64_t hidden, metadata.Int(architecture + ".embedding_length"));
  KVASIR_TRY(const int64_t key_dim,
             metadata.IntOr(attention + "key_length", heads > 0 ? hidden / heads : 0));
  KVASIR_TRY(const int64_t value_dim, metadata.IntOr(attention + "value_length", key_dim));
  constexpr int64_t kMost = int64_t{1} << 24;
  for (const int64_t size : {heads, kv_heads, key_dim, value_dim}) {
    if (size >= 1 && size <= kMost) continue;
    return Error{ErrorCode::kCorrupt,
                 "metadata '" + attention + "...' has a size of " + std::to_string(size)};
  }
  return std::array<int64_t, 3>{heads * key_dim, kv_heads * key_dim, kv_heads * value_dim};
}

}  // namespace

Status GgufFile::SplitFusedProjections() {
  std::vector<std::string> fused;
  for (const auto& [name, place] : tensors_) {
    if (name.starts_with("blk.") && name.find(kFused) != name.npos) fused.push_back(name);
  }
  if (fused.empty()) return {};
  KVASIR_TRY(const std::string architecture, metadata().TextOr("general.architecture", ""));
  if (std::ranges::find(kThreeApart, architecture) == kThreeApart.end()) return {};
  KVASIR_TRY(const auto rows, RowsOf(metadata(), architecture));
  for (const std::string& name : fused) {
    const auto [part, index] = tensors_.find(name)->second;
    const GgufEntry whole = headers_[part].entries[index];
    const auto total = static_cast<uint64_t>(whole.shape.front());
    if (whole.shape.front() != rows[0] + rows[1] + rows[2] || whole.size_bytes % total != 0) {
      return {ErrorCode::kCorrupt, "tensor '" + name + "' has " + std::to_string(total) +
                                       " rows, of queries, keys and values there must be " +
                                       std::to_string(rows[0]) + ", " + std::to_string(rows[1]) +
                                       " and " + std::to_string(rows[2])};
    }
    tensors_.erase(name);
    uint64_t begin = whole.begin;
    for (size_t i = 0; i < kParts.size(); ++i) {
      GgufEntry entry = whole;
      entry.name.replace(name.find(kFused), kFused.size(), kParts[i]);
      entry.shape.front() = rows[i];
      entry.begin = begin;
      entry.size_bytes = whole.size_bytes / total * static_cast<uint64_t>(rows[i]);
      begin += entry.size_bytes;
      if (!tensors_.emplace(entry.name, std::pair(part, headers_[part].entries.size())).second) {
        return {ErrorCode::kCorrupt, "tensor '" + entry.name + "' is in '" + name + "' too"};
      }
      headers_[part].entries.push_back(std::move(entry));
    }
  }
  return {};
}

}  // namespace kvasir
