// A model answers two questions about one text; the second one finds the text in the cache.
// Usage: generate MODEL_FOLDER
// Deliberately the whole program: no server, no sampling, no error that is not printed.
#include <cstdio>
#include <string>
#include <string_view>

#include "kvasir/engine/generator.h"
#include "kvasir/engine/model_bundle.h"

using namespace kvasir;  // NOLINT: an example

namespace {

constexpr const char* kText =
    "Lucia whispered: \"We need three plates.\" The pass key is 48213. Remember it. ";

Status Ask(ModelBundle& bundle, CachedSequence& sequence, const std::string& question) {
  const Json messages = Json::Array{Json::Object{{"role", "user"}, {"content", question}}};
  GenerationRequest request;
  KVASIR_TRY(request.prompt, bundle.ChatTokens(messages));
  request.max_tokens = 64;
  GenerationCallbacks callbacks;
  callbacks.on_text = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  Generator generator(&bundle);
  KVASIR_TRY(const GenerationResult result, generator.Generate(request, sequence, callbacks));
  std::printf("\n  [%lld of %lld prompt tokens from the cache, %zu bytes of KV]\n",
              static_cast<long long>(result.stats.cached_tokens),
              static_cast<long long>(result.stats.prompt_tokens), result.stats.kv_bytes);
  return {};
}

Status Run(const std::string& folder) {
  KVASIR_TRY(const auto bundle, ModelBundle::Load(folder, {}));
  KVASIR_TRY(CachedSequence sequence, bundle->NewSequence());
  KVASIR_TRY_OK(Ask(*bundle, sequence, std::string(kText) + "What is the pass key?"));

  CachedSequence fork = sequence.Fork();  // shares every block, copies nothing
  KVASIR_TRY_OK(Ask(*bundle, fork, std::string(kText) + "What did Lucia say?"));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: generate MODEL_FOLDER\n");
    return 2;
  }
  const Status status = Run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
