// TestModel: a tiny model with tokenizer and chat template in a folder of its own.
// Deliberately random weights: what it says is noise, but the same noise every time.
#ifndef KVASIR_SERVER_TEST_MODEL_H_
#define KVASIR_SERVER_TEST_MODEL_H_

#include <cstddef>
#include <memory>
#include <string>

#include "kvasir/engine/model_bundle.h"

namespace kvasir {

// 256 tokens, one per byte; a context of 4096; token 2 ends an answer. The template writes
// "<role>content\n" per message and "<assistant>" at the end, refuses the word "refuse", and shows
// the variable `note` if there is one; `more_template` is what it goes on with.
// REQUIRES: the folder exists.
Status WriteTestModel(const std::string& folder, const std::string& more_template = "");

// Written to a scratch folder, loaded on one thread, and the folder removed again.
// `kv_budget_bytes`: BundleOptions.
Result<std::unique_ptr<ModelBundle>> LoadTestModel(size_t kv_budget_bytes = 64 << 20,
                                                   const std::string& more_template = "");
// The same without a chat template.
Result<std::unique_ptr<ModelBundle>> LoadBaseTestModel();

}  // namespace kvasir

#endif  // KVASIR_SERVER_TEST_MODEL_H_
