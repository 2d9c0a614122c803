#include "kvasir/base/system_info.h"

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace kvasir {

namespace {

// The number behind `key` in a file of "key: number kB" lines.
size_t ReadKibibytes(const char* path, const std::string& wanted) {
  std::ifstream file(path);
  std::string key;
  while (file >> key) {
    if (key == wanted) {
      uint64_t kibibytes = 0;
      file >> kibibytes;
      return static_cast<size_t>(kibibytes) * 1024;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

size_t AvailableMemoryBytes() { return ReadKibibytes("/proc/meminfo", "MemAvailable:"); }

size_t PeakResidentBytes() { return ReadKibibytes("/proc/self/status", "VmHWM:"); }

void ResetPeakResidentBytes() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace kvasir
