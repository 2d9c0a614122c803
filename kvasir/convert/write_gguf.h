// WriteGguf: a model folder or GGUF file becomes a GGUF file.
// Deliberately few types: f32, f16, bf16, and Q8_0 and Q4_0, whose blocks are the groups that
// --weights q8 and q4 make.
#ifndef KVASIR_CONVERT_WRITE_GGUF_H_
#define KVASIR_CONVERT_WRITE_GGUF_H_

#include <cstdint>
#include <functional>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"

namespace kvasir {

struct GgufOptions {
  // "f32", "f16", "bf16", "q8_0" or "q4_0": of matrices; "stored": the float type that most of the
  // source's weights have. Vectors are f32; with q4_0 the embedding and the head are Q8_0; matrices
  // without whole blocks are f16.
  std::string type = "q8_0";
  int threads = 0;  // 0: AvailableCores()
  // Called with bytes written so far and in all, now and then. May be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// The file appears under `path` when it is complete. ERRORS: kInvalidArgument for unknown types and
// for quantized sources as "stored";
// kFailedPrecondition when `path` exists; kUnsupported for models that GGUF has no names for,
// naming the tensor or field; kIo.
Status WriteGguf(const ModelSource& source, const std::string& path, const GgufOptions& options);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_WRITE_GGUF_H_
