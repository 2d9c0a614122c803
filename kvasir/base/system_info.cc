#include "kvasir/base/system_info.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <thread>
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

// Where the control groups of this process that may limit `controller` are, in either version: the
// root that a container sees, its own, and all between.
std::vector<std::string> ControlGroupFolders(const std::string& root,
                                             const std::string& controller) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::vector<std::string> folders = {mount, mount + "/" + controller};
  std::ifstream file(root + "/proc/self/cgroup");  // lines of number:controllers:path
  for (std::string line; std::getline(file, line);) {
    const size_t name = line.find(':');
    const size_t end = line.find(':', name + 1);
    if (name == std::string::npos || end == std::string::npos) continue;
    const std::string controllers = line.substr(name, end - name) + ",";
    const bool is_second = controllers == ":,";
    if (!is_second && controllers.find(controller + ",") == std::string::npos) continue;
    const std::string top = folders[is_second ? 0 : 1];
    std::string path = line.substr(end + 1);
    for (; path.starts_with("/") && path != "/"; path.erase(path.rfind('/'))) {
      folders.push_back(top + path);
    }
  }
  return folders;
}

// Processors that a control group's folder (version 1 or 2) gives time for, rounded up; none if it
// has no limit.
std::optional<int64_t> ControlGroupProcessors(const std::string& folder) {
  int64_t quota = 0;  // microseconds of processor time in each period, all threads together
  int64_t period = 0;
  std::ifstream limit(folder + "/cpu.max");
  if (!(limit >> quota >> period)) {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return (quota - 1) / period + 1;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool is_known = sched_getaffinity(0, sizeof(set), &set) == 0;
  const int count = is_known ? CPU_SETSIZE : static_cast<int>(std::thread::hardware_concurrency());
  for (int cpu = 0; cpu < count; ++cpu) {
    if (!is_known || CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
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
  for (const std::string& folder : ControlGroupFolders("", "memory")) {
    const std::optional<size_t> free = ControlGroupFreeBytes(folder);
    if (free && (available == 0 || *free < available)) available = *free;
  }
  return available;
}

size_t PeakResidentBytes() { return ReadKibibytes("/proc/self/status", "VmHWM:"); }

void ResetPeakResidentBytes() { std::ofstream("/proc/self/clear_refs") << 5; }

int AvailableCores() { return AvailableCores(AllowedCpus(), ""); }

int AvailableCores(std::span<const int> cpus, const std::string& root) {
  std::set<std::string> cores;  // by the hardware threads of each
  for (const int cpu : cpus) {
    const std::string number = std::to_string(cpu);
    std::ifstream file(root + "/sys/devices/system/cpu/cpu" + number +
                       "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(file >> siblings ? siblings : number);
  }
  int64_t count = static_cast<int64_t>(cores.size());
  for (const std::string& folder : ControlGroupFolders(root, "cpu")) {
    count = std::min(count, ControlGroupProcessors(folder).value_or(count));
  }
  return static_cast<int>(std::max<int64_t>(count, 1));
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

std::vector<int> NumaNodes() { return NumaNodes(AllowedCpus(), ""); }

std::vector<int> NumaNodes(std::span<const int> cpus, const std::string& root) {
  std::set<int> nodes;
  for (const int cpu : cpus) {
    // The folder of a thread has a link node0, node1, ... to the one it belongs to.
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(
             root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu), error)) {
      const std::string name = entry.path().filename();
      if (name.size() < 5 || name.size() > 8 || !name.starts_with("node")) continue;
      if (!std::all_of(name.begin() + 4, name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        continue;
      }
      nodes.insert(std::stoi(name.substr(4)));
    }
  }
  return {nodes.begin(), nodes.end()};
}

}  // namespace kvasir
