// Uses the installed engine: loads the model folder it is given and generates eight tokens.
#include <cstdio>

#include "kvasir/engine/generator.h"

namespace {

kvasir::Status Run(const char* folder) {
  kvasir::BundleOptions options;
  options.kv_budget_bytes = size_t{64} << 20;
  KVASIR_TRY(const auto bundle, kvasir::ModelBundle::Load(folder, options));
  KVASIR_TRY(kvasir::CachedSequence sequence, bundle->NewSequence());
  kvasir::GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 8;
  request.ignore_stop_tokens = true;
  KVASIR_TRY(const kvasir::GenerationResult result,
             kvasir::Generator(bundle.get()).Generate(request, sequence));
  std::printf("%zu tokens after %zu\n", result.tokens.size(), request.prompt.size());
  if (result.tokens.size() != 8) {
    return {kvasir::ErrorCode::kFailedPrecondition, "eight tokens were asked for"};
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: consumer MODEL_FOLDER\n");
    return 2;
  }
  const kvasir::Status status = Run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
