#include "bench/draft_measure.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

EngineClock::time_point ProcessorTime() {
  timespec time = {};
  KVASIR_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return EngineClock::time_point(std::chrono::seconds(time.tv_sec) +
                                 std::chrono::nanoseconds(time.tv_nsec));
}

// Of the thread that opens it, from then on (perf_event_open(2)).
class CycleCounter {
 public:
  static Result<std::shared_ptr<const CycleCounter>> Open() {
    perf_event_attr event = {};
    event.size = sizeof(event);
    event.type = PERF_TYPE_HARDWARE;
    event.config = PERF_COUNT_HW_CPU_CYCLES;
    event.exclude_kernel = 1;
    event.exclude_hv = 1;
    const auto file = static_cast<int>(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    if (file >= 0) return std::shared_ptr<const CycleCounter>(new CycleCounter(file));
    const bool is_forbidden = errno == EACCES || errno == EPERM;
    return Error{ErrorCode::kFailedPrecondition,
                 std::string("cycles cannot be counted: ") + std::strerror(errno) +
                     (is_forbidden ? "; set kernel.perf_event_paranoid to 2 or less"
                                   : "; this processor or virtual machine has no counters, measure "
                                     "'thread' or 'processor' instead")};
  }
  CycleCounter(const CycleCounter&) = delete;
  CycleCounter& operator=(const CycleCounter&) = delete;
  ~CycleCounter() { close(file_); }

  uint64_t Read() const {
    uint64_t cycles = 0;
    KVASIR_CHECK(read(file_, &cycles, sizeof(cycles)) == sizeof(cycles));
    return cycles;
  }

 private:
  explicit CycleCounter(int file) : file_(file) {}

  const int file_;
};

}  // namespace

Result<Measure> MeasureFromName(std::string_view name) {
  if (name.empty() || name == "wall") return Measure{};
  if (name == "thread") return Measure{EngineClock::now, 1, "tok/s"};
  if (name == "processor") return Measure{ProcessorTime, 1, "tok/s"};
  if (name == "cycles") {
    KVASIR_TRY(const auto counter, CycleCounter::Open());
    const auto now = [counter] {
      return EngineClock::time_point(std::chrono::nanoseconds(counter->Read()));
    };
    return Measure{now, 1, "tok/Gcycle"};
  }
  return Error{ErrorCode::kInvalidArgument,
               std::string(name) + " is no measure; there are wall, thread, processor and cycles"};
}

}  // namespace kvasir
