// Logging through an injected sink: the library itself never prints.
// Deliberately no levels per module, no formatting language, no global logger.
#ifndef KVASIR_BASE_LOG_H_
#define KVASIR_BASE_LOG_H_

#include <functional>
#include <string_view>

namespace kvasir {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Called with one line, without a newline. An empty function means silence. Must be thread-safe.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

inline void Log(const LogSink& sink, LogLevel level, std::string_view line) {
  if (sink) sink(level, line);
}

}  // namespace kvasir

#endif  // KVASIR_BASE_LOG_H_
