// KVASIR_CHECK: what we did to ourselves. A failed check prints where and ends the process.
// Deliberately not for input: nothing that comes from a file, socket, flag or budget may reach one.
#ifndef KVASIR_BASE_CHECK_H_
#define KVASIR_BASE_CHECK_H_

namespace kvasir {

// Prints "file:line: check failed: condition" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace kvasir

#define KVASIR_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::kvasir::CheckFailed(__FILE__, __LINE__, #condition))

// Only where a check would cost time in a hot loop; active in debug and sanitizer builds.
#ifdef NDEBUG
#define KVASIR_DCHECK(condition) void(sizeof(static_cast<bool>(condition)))
#else
#define KVASIR_DCHECK(condition) KVASIR_CHECK(condition)
#endif

#endif  // KVASIR_BASE_CHECK_H_
