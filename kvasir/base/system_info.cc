#include "kvasir/base/system_info.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

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

// The number that a file holds; none if it has none ("max") or is not there.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The number behind `key` in a file of "key number" lines.
uint64_t ReadStatistic(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string key;
  for (uint64_t number = 0; file >> key >> number;) {
    if (key == wanted) return number;
  }
  return 0;
}

// Where the control groups of this process may be: its own, and the root that a container sees.
std::vector<std::string> ControlGroupFolders() {
  std::vector<std::string> folders = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t name = line.find(':');
    const size_t path = line.find(':', name + 1);
    if (name == std::string::npos || path == std::string::npos) continue;
    const std::string controllers = line.substr(name + 1, path - name - 1);
    if (controllers.empty()) folders.push_back(folders[0] + line.substr(path + 1));
    if (controllers == "memory") folders.push_back(folders[1] + line.substr(path + 1));
  }
  return folders;
}

}  // namespace

std::optional<size_t> ControlGroupFreeBytes(const std::string& folder) {
  const bool is_first = !ReadNumber(folder + "/memory.current").has_value();
  const auto limit = ReadNumber(folder + (is_first ? "/memory.limit_in_bytes" : "/memory.max"));
  const auto used = ReadNumber(folder + (is_first ? "/memory.usage_in_bytes" : "/memory.current"));
  // Version 1 says "no limit" with a number beyond every machine.
  if (!limit || !used || *limit >> 60 != 0) return std::nullopt;
  const uint64_t idle =
      ReadStatistic(folder + "/memory.stat", is_first ? "total_inactive_file" : "inactive_file");
  const uint64_t bound = *used - std::min(*used, idle);
  return static_cast<size_t>(*limit - std::min(*limit, bound));
}

size_t AvailableMemoryBytes() {
  size_t available = ReadKibibytes("/proc/meminfo", "MemAvailable:");
  for (const std::string& folder : ControlGroupFolders()) {
    const std::optional<size_t> free = ControlGroupFreeBytes(folder);
    if (free && (available == 0 || *free < available)) available = *free;
  }
  return available;
}

size_t PeakResidentBytes() { return ReadKibibytes("/proc/self/status", "VmHWM:"); }

void ResetPeakResidentBytes() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace kvasir
