#include "kvasir/server/prompt_cache_file.h"

#include <filesystem>
#include <limits>
#include <system_error>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

std::string Line(const char* verb, const PrefixCacheFileStats& stats) {
  return std::string(": ") + verb + std::to_string(stats.tokens) + " cached tokens, " +
         std::to_string(stats.bytes) + " bytes";
}

}  // namespace

void PromptCacheFile::Load(EngineService& service) {
  if (path_.empty() || !FileExists(path_)) return;
  const auto loaded = service.LoadCache(path_);
  is_unused_ = !loaded.ok();
  if (is_unused_) {
    return Log(log_, LogLevel::kWarning, "the prompt cache is not used: " + loaded.error().message);
  }
  Log(log_, LogLevel::kInfo, path_ + Line("", *loaded));
}

void PromptCacheFile::Save(EngineService& service) {
  if (path_.empty()) return;
  // Nothing goes before what takes its place is there.
  const std::string target = is_unused_ ? path_ + ".new" : path_;
  const auto saved =
      service.SaveCache(target, most_bytes_ > 0 ? most_bytes_ : std::numeric_limits<size_t>::max());
  if (!saved.ok()) {
    return Log(log_, LogLevel::kWarning, "the prompt cache is not saved: " + saved.error().message);
  }
  if (is_unused_ && saved->tokens == 0) {
    std::error_code ignored;
    std::filesystem::remove(target, ignored);
    return Log(log_, LogLevel::kInfo, path_ + ": nothing is cached to be saved; it stays as it is");
  }
  if (is_unused_) {
    const std::string unused = path_ + ".unused";
    std::error_code error;
    std::filesystem::rename(path_, unused, error);
    if (!error || error == std::errc::no_such_file_or_directory) {
      std::filesystem::rename(target, path_, error);
    }
    if (error) {
      return Log(log_, LogLevel::kWarning,
                 "the prompt cache is in " + target + ", for " + path_ +
                     " cannot be renamed: " + error.message());
    }
    Log(log_, LogLevel::kWarning, unused + " is what " + path_ + " was, which was not used");
  }
  Log(log_, LogLevel::kInfo, path_ + Line("saved ", *saved));
}

}  // namespace kvasir
