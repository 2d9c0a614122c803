#include "kvasir/base/system_info.h"

#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace kvasir {

size_t AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  while (file >> key) {
    if (key == "MemAvailable:") {
      uint64_t kibibytes = 0;
      file >> kibibytes;
      return static_cast<size_t>(kibibytes) * 1024;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

size_t PeakResidentBytes() {
  struct rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<size_t>(usage.ru_maxrss) * 1024;  // Linux counts in KiB
}

}  // namespace kvasir
