// What trace files are made of: tensors, lists of names, fields that must be there.
// Deliberately strict: a trace that does not fit its own shapes is malformed, not a difference.
#ifndef KVASIR_CLI_TRACE_TENSOR_H_
#define KVASIR_CLI_TRACE_TENSOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

// A tensor of a trace: flat, row-major.
template <typename T>
struct TraceTensor {
  std::vector<int64_t> shape;
  std::vector<T> data;

  // Part `index` of `parts` equal ones: one layer of a tensor with a leading layer dimension.
  // REQUIRES: parts divides the number of elements.
  std::span<const T> Part(int64_t index, int64_t parts) const {
    const size_t size = data.size() / static_cast<size_t>(parts);
    return std::span(data).subspan(static_cast<size_t>(index) * size, size);
  }
};

Error MalformedTrace(const std::string& what);

// ERRORS of all: kCorrupt, naming the field.
Result<const Json*> TraceMember(const Json& object, std::string_view key);
Result<std::vector<std::string>> TraceNames(const Json& array);
// {"dtype":"f32"} or generated.
Result<TraceTensor<float>> ReadFloatTensor(const Json& json);
// {"dtype":"u32"}
Result<TraceTensor<uint32_t>> ReadWordTensor(const Json& json);

}  // namespace kvasir

#endif  // KVASIR_CLI_TRACE_TENSOR_H_
