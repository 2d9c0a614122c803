// What benchmarks of drafts go by: the clock on the wall, a thread's processor time, or its cycles.
// Deliberately without engines: it hands out clocks.
#ifndef KVASIR_BENCH_DRAFT_MEASURE_H_
#define KVASIR_BENCH_DRAFT_MEASURE_H_

#include <functional>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/engine/request.h"

namespace kvasir {

struct Measure {
  std::function<EngineClock::time_point()> now = EngineClock::now;  // planner and figures go by it
  int threads = 0;                                                  // 0: all
  std::string unit = "tok/s";
};

// "" and "wall": the clock on the wall, all threads. "thread": the same, one thread works.
// "processor": the processor time of that thread, where other programs are about; asking for it is
// a system call, which several times a step may be several percent. "cycles": its cycles in user
// mode, as if each took 1 ns; other programs, interrupts and the frequency do not count, waiting
// for memory does.
// ERRORS: kInvalidArgument, listing them; kFailedPrecondition if the machine counts no cycles.
Result<Measure> MeasureFromName(std::string_view name);

}  // namespace kvasir

#endif  // KVASIR_BENCH_DRAFT_MEASURE_H_
