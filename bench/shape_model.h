// A model folder for the shape of a published model: its config.json beside a made-up tokenizer.
// Deliberately no weights: they are made up, too (--random-weights).
#ifndef KVASIR_BENCH_SHAPE_MODEL_H_
#define KVASIR_BENCH_SHAPE_MODEL_H_

#include <string>

#include "kvasir/base/result.h"

namespace kvasir {

// Makes the folder that `*folder` names, a pattern of mkdtemp, and leaves its name there.
// `shape`: a folder with a config.json. ERRORS: kIo, kNotFound, kCorrupt.
Status MakeShapeModel(const std::string& shape, std::string* folder);

}  // namespace kvasir

#endif  // KVASIR_BENCH_SHAPE_MODEL_H_
