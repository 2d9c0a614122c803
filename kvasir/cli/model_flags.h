// The options that every verb with a model shares, and how they become a ModelBundle.
// Deliberately also the one place that knows where the bundled model lies.
#ifndef KVASIR_CLI_MODEL_FLAGS_H_
#define KVASIR_CLI_MODEL_FLAGS_H_

#include <memory>
#include <optional>
#include <string>

#include "kvasir/cli/flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/kv/kv_policy_flags.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

// "4096", "800M", "4G": bytes, with a binary unit. ERRORS: kInvalidArgument naming the flag.
Result<size_t> ParseBytes(const std::string& flag, const std::string& text);

struct ModelFlags {
  std::string model;  // empty: the bundled one
  std::string weights = "stored";
  std::string packed_weights;  // a folder; empty: not kept
  KvPolicyFlags kv;
  std::string cache_bytes = "0";
  int64_t threads = 0;
  std::string isa = "best";
  std::string prefetch = "auto";
  std::string kv_attention = "auto";
  bool random_weights = false;
  // BundleOptions; not flags of their own.
  int64_t engine_step_tokens = 0;
  int64_t engine_streams = 1;
  std::optional<size_t> draft_bytes;
  TextNeed text_need = TextNeed::kNone;
  LogSink log = LogToStderr;  // what was loaded, and how

  // `default_kv_dtype`: how the cache is stored when no flag says so.
  void Declare(Flags& flags, const std::string& default_kv_dtype = "f16");
  // ERRORS: kInvalidArgument for values out of range, and as KvPolicy::FromFlags.
  Result<BundleOptions> Options() const;
  // Loads the model and says on stderr what was loaded.
  Result<std::unique_ptr<ModelBundle>> Load() const;
  // The folder to load. ERRORS: kNotFound when no model is given and the bundled one is missing.
  Result<std::string> Folder() const;

 private:
  void DeclareCache(Flags& flags);
};

struct SamplingFlags {
  // -1: what the model's generation_config.json recommends, else off (temperature: greedy).
  double temperature = -1;
  int64_t top_k = -1;
  double top_p = -1;
  double min_p = -1;
  uint64_t seed = 0;

  void Declare(Flags& flags);
  // Before a model is loaded. ERRORS: kInvalidArgument, naming the flag.
  Status Check() const;
  // What was given, over what the model recommends.
  SamplingOptions Resolve(const GenerationConfig& recommended) const;
};

// The folder of the bundled model `name`, found beside the program: in its installation
// (../share/kvasir/models) or in a source tree above it. ERRORS: kNotFound.
Result<std::string> BundledModel(const std::string& name);

}  // namespace kvasir

#endif  // KVASIR_CLI_MODEL_FLAGS_H_
