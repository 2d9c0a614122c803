#include "bench/shape_model.h"

#include <stdlib.h>

#include "kvasir/base/file.h"
#include "kvasir/base/json.h"
#include "tests/support/scratch_model.h"

namespace kvasir {
Status MakeShapeModel(const std::string& shape, std::string* folder) {
  KVASIR_TRY(const std::string config, ReadFile(shape + "/config.json"));
  KVASIR_TRY(const Json json, Json::Parse(config));
  KVASIR_TRY(const int64_t vocab_size, json.GetInt("vocab_size"));
  if (mkdtemp(folder->data()) == nullptr) return {ErrorCode::kIo, "cannot make " + *folder};
  KVASIR_TRY_OK(WriteFileAtomic(*folder + "/config.json", config));
  return WriteScratchTokenizer(*folder, vocab_size);
}

}  // namespace kvasir
