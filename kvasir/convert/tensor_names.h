// Parts of the names that checkpoints give their tensors.
// Deliberately only what writers of files ask; names are made by the model layer.
#ifndef KVASIR_CONVERT_TENSOR_NAMES_H_
#define KVASIR_CONVERT_TENSOR_NAMES_H_

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace kvasir {

// The number after the first "layers."; nothing without one.
inline std::optional<int64_t> LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return std::nullopt;
  int64_t layer = 0;
  const char* const begin = name.data() + at + kLayers.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  return error == std::errc() ? std::optional(layer) : std::nullopt;
}

}  // namespace kvasir

#endif  // KVASIR_CONVERT_TENSOR_NAMES_H_
