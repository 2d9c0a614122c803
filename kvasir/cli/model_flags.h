// The options that every verb with a model shares, and how they become a ModelBundle.
// Deliberately also the one place that knows where the bundled model lies.
#ifndef KVASIR_CLI_MODEL_FLAGS_H_
#define KVASIR_CLI_MODEL_FLAGS_H_

#include <memory>
#include <string>

#include "kvasir/cli/flags.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

struct ModelFlags {
  std::string model;  // empty: the bundled one
  std::string weights = "stored";
  std::string kv_dtype = "f16";
  std::string kv_key_dtype;    // empty: kv_dtype
  std::string kv_value_dtype;  // empty: kv_dtype
  int64_t kv_budget_mib = 0;
  int64_t threads = 0;
  std::string isa = "best";
  bool random_weights = false;

  void Declare(Flags& flags);
  // ERRORS: kInvalidArgument for values out of range.
  Result<BundleOptions> Options() const;
  // Loads the model and says on stderr what was loaded.
  Result<std::unique_ptr<ModelBundle>> Load() const;
  // The folder to load. ERRORS: kNotFound when no model is given and the bundled one is missing.
  Result<std::string> Folder() const;
};

struct SamplingFlags {
  // -1: what the model's generation_config.json recommends, else off (temperature: greedy).
  double temperature = -1;
  int64_t top_k = -1;
  double top_p = -1;
  double min_p = -1;
  uint64_t seed = 0;

  void Declare(Flags& flags);
  // What was given, over what the model recommends.
  SamplingOptions Resolve(const GenerationConfig& recommended) const;
};

// The folder of the bundled model `name`, found beside the program: in its installation
// (../share/kvasir/models) or in a source tree above it. ERRORS: kNotFound.
Result<std::string> BundledModel(const std::string& name);

}  // namespace kvasir

#endif  // KVASIR_CLI_MODEL_FLAGS_H_
