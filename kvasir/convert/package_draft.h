// Whether a draft can serve a model: it is another one, and says the same by the same tokens.
// Deliberately compares whole vocabularies: one differing token would be proposed and refused, or
// worse, accepted as something else.
#ifndef KVASIR_CONVERT_PACKAGE_DRAFT_H_
#define KVASIR_CONVERT_PACKAGE_DRAFT_H_

#include <memory>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

// Null without a tokenizer.json. ERRORS: kCorrupt, kUnsupported, naming the file.
Result<std::unique_ptr<const Tokenizer>> TokenizerOf(const ModelSource& source);

// ERRORS: kInvalidArgument when both are one file or folder.
Status CheckDraftIsAnother(const std::string& model_path, const std::string& draft_path);
// ERRORS: kInvalidArgument, naming the first token that differs; kCorrupt, kUnsupported for
// tokenizers that cannot be read. A draft without a tokenizer is compared by size, one that is an
// assistant also as AssistantModel::CheckTarget does.
Status CheckDraftVocabulary(const ModelSource& model, const ModelSource& draft);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_PACKAGE_DRAFT_H_
