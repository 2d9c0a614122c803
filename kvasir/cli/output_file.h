// What verbs write to files that people name: what stands there may be anything, and a slip of the
// hand must not cost it.
// Deliberately only looks: the writers replace.
#ifndef KVASIR_CLI_OUTPUT_FILE_H_
#define KVASIR_CLI_OUTPUT_FILE_H_

#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

// That a file could be written under `path`, where there is none, an empty one or one that begins
// with `magic`; `kind` is what such a file is called. ERRORS: as FileWriter::Create;
// kFailedPrecondition.
Status CheckMayWrite(const std::string& path, std::string_view magic, std::string_view kind);

// The same of a saved cache (kv_snapshot_file.h).
Status CheckMayWriteSnapshot(const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_CLI_OUTPUT_FILE_H_
