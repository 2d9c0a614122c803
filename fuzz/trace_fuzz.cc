// Fuzzes `kvasir replay`: any JSON is refused as a trace, or runs against real caches.
// Deliberately not a check of the outcome: a trace may hold, fail, or be not yet there.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/check.h"
#include "kvasir/cli/trace.h"

namespace {

std::unique_ptr<kvasir::Backend> MakeBackend() {
  auto backend = kvasir::MakeCpuBackend({.threads = 1});
  KVASIR_CHECK(backend.ok());
  return *std::move(backend);
}

// For the files of save_load; several fuzzers may run side by side.
std::string MakeScratchFolder() {
  const std::string folder =
      (std::filesystem::temp_directory_path() / "kvasir-trace-fuzz-").string() +
      std::to_string(getpid());
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<kvasir::Backend> kBackend = MakeBackend();
  static const std::string kScratch = MakeScratchFolder();
  const auto trace =
      kvasir::Json::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!trace.ok()) return 0;
  const auto result = kvasir::ReplayTrace(*trace, *kBackend, kScratch);
  KVASIR_CHECK(result.ok() || !result.error().message.empty());
  return 0;
}
