// CreatePackage: one self-contained folder of a model, its draft, and how they want to be used.
// Deliberately nothing that other engines stumble over: without its draft and "kvasir.json" the
// folder is an ordinary one.
//
//   DIR/config.json, model*.safetensors, tokenizer.json, ...   the model
//   DIR/draft/...                                              the draft, the same again
//   DIR/kvasir.json                                            docs/formats/package.md
#ifndef KVASIR_CONVERT_PACKAGE_H_
#define KVASIR_CONVERT_PACKAGE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "kvasir/base/log.h"
#include "kvasir/base/result.h"
#include "kvasir/convert/modelfile.h"

namespace kvasir {

struct PackageOptions {
  Modelfile file;              // paths are relative to `base`
  std::string base;            // folder of the Modelfile; empty: the working directory
  std::string output;          // the folder to create
  std::string quantize;        // type of the model's weights; empty: as stored
  std::string quantize_draft;  // of the draft's; empty: as stored
  int threads = 0;             // 0: AvailableCores()
  // Called with what is written ("model", "draft") and bytes of it so far and in all. May be empty.
  std::function<void(std::string_view part, uint64_t done, uint64_t total)> progress;
  LogSink log;  // gets the ConversionNotes of both
};

// ERRORS: kInvalidArgument (unknown types and parameters, a draft that is the model or has another
// vocabulary), kNotFound, kFailedPrecondition (the folder exists), kCorrupt, kUnsupported, kIo.
// What cannot work is said before anything is written.
Status CreatePackage(const PackageOptions& options);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_PACKAGE_H_
