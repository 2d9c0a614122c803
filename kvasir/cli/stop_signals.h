// StopSignals: SIGINT and SIGTERM of a program that has something to end in order.
// Deliberately nothing that runs in a signal handler: a thread waits for them.
#ifndef KVASIR_CLI_STOP_SIGNALS_H_
#define KVASIR_CLI_STOP_SIGNALS_H_

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

namespace kvasir {

// The first signal after Keep is kept for Wait. Any other ends the program at once, as it does
// where nobody catches it: while it still loads, and where it takes too long to stop.
class StopSignals {
 public:
  // REQUIRES: no other thread runs; those that start later leave the signals to this one.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void Keep();
  // Until one is kept. REQUIRES: Keep was called.
  void Wait();

 private:
  enum class State { kEnding, kKeeping, kKept, kOver };

  void Run();

  sigset_t signals_;
  std::mutex mutex_;
  std::condition_variable kept_;
  State state_ = State::kEnding;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_CLI_STOP_SIGNALS_H_
