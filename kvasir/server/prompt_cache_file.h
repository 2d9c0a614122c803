// PromptCacheFile: the file that a server's cache outlives it in (docs/server.md, "A cache that
// stays").
// Deliberately never a reason not to start or stop: what goes wrong is logged, and what a run could
// not use is still there after it.
#ifndef KVASIR_SERVER_PROMPT_CACHE_FILE_H_
#define KVASIR_SERVER_PROMPT_CACHE_FILE_H_

#include <cstddef>
#include <string>

#include "kvasir/base/log.h"
#include "kvasir/server/engine_service.h"

namespace kvasir {

class PromptCacheFile {
 public:
  // No path: nothing is read or written. `most_bytes`, of blocks; 0: all that is cached.
  PromptCacheFile(std::string path, size_t most_bytes, LogSink log)
      : path_(std::move(path)), most_bytes_(most_bytes), log_(std::move(log)) {}

  void Load(EngineService& service);
  // A file that could not be loaded becomes <path>.unused, replacing the one before, once there is
  // a new one.
  void Save(EngineService& service);

 private:
  const std::string path_;
  const size_t most_bytes_;
  const LogSink log_;
  bool is_unused_ = false;  // what the file holds
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_PROMPT_CACHE_FILE_H_
