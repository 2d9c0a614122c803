// Whether a package's chat template and system message can be used together.
// Deliberately by rendering one conversation: what a template means shows in what it writes.
#ifndef KVASIR_CONVERT_PACKAGE_CHAT_H_
#define KVASIR_CONVERT_PACKAGE_CHAT_H_

#include <string>

#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"

namespace kvasir {

// The source of a package's chat template: `chat_template`, or if that is empty the model's own;
// empty: there is none. ERRORS: kCorrupt, kUnsupported for templates that cannot be read.
Result<std::string> PackageTemplate(const ModelSource& source, const std::string& chat_template);

// `chat_template` empty: the model's own, if it has one. `system` empty: none.
// ERRORS: kCorrupt, kUnsupported for templates that cannot be read; kInvalidArgument for one that
// fails or does not show what a user says, as those of other languages.
Status CheckPackageChat(const ModelSource& source, const std::string& chat_template,
                        const std::string& system);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_PACKAGE_CHAT_H_
