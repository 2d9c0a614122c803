// PackageFile: kvasir.json, what a packaged model folder says beyond what every folder says.
// Deliberately small: everything that has a place in the usual files is there instead.
#ifndef KVASIR_FORMATS_PACKAGE_FILE_H_
#define KVASIR_FORMATS_PACKAGE_FILE_H_

#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

inline constexpr std::string_view kPackageFileName = "kvasir.json";

struct PackageFile {
  std::string system;         // system message where a conversation has none; may be empty
  std::string draft;          // folder of the draft model, inside the package; empty: none
  std::string weights;        // "int4", "bf16", "stored": for people
  std::string draft_weights;  // likewise

  Json ToJson() const;
  // ERRORS: kCorrupt, naming the field; kUnsupported for another version.
  static Result<PackageFile> Parse(const Json& json);
  // Of a model folder; all empty without the file. ERRORS: as Parse, beginning with the path; kIo.
  static Result<PackageFile> Load(const std::string& folder);
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_PACKAGE_FILE_H_
