#include "kvasir/convert/conversion_notes.h"

#include <algorithm>
#include <utility>

#include "kvasir/convert/gguf_reader_notes.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/model/tensor_list.h"

namespace kvasir {

bool HasQuantizedTensors(const ModelSource& source) {
  const auto& tensors = source.tensors();
  return source.checkpoint() == nullptr &&
         std::any_of(tensors.begin(), tensors.end(), [](const SourceTensor& tensor) {
           return IsQuantized(tensor.rows.stored_format);
         });
}

std::vector<std::string> ConversionNotes(const ModelSource& source,
                                         const ConversionTarget& target) {
  std::vector<std::string> notes;
  // A folder's go into another folder, where they were.
  if (source.checkpoint() == nullptr || target.is_gguf) {
    const auto unread = UnreadTensorsOf(source);
    if (unread.ok() && !unread->empty()) {
      notes.push_back(UnreadLine(*unread) + "; they stay behind");
    }
  }
  if (!target.is_gguf && target.is_stored && HasQuantizedTensors(source)) {
    notes.push_back(
        "quantized tensors of GGUF files are written as f16, rounded; --type f32 of convert keeps "
        "what they are");
  }
  if (target.is_gguf && source.FindFile(kPackageFileName) != nullptr) {
    notes.push_back(
        "a GGUF file has no place for the package's system message, which stays behind");
  }
  if (target.is_gguf) {
    // What is no config is said by who converts.
    if (const auto config = ModelConfig::Parse(source.config()); config.ok()) {
      for (std::string& note : GgufReaderNotes(*config)) notes.push_back(std::move(note));
    }
  }
  return notes;
}

}  // namespace kvasir
