#include "kvasir/cli/stop_signals.h"

#include <unistd.h>

namespace kvasir {
namespace {

// As if it had never been blocked.
[[noreturn]] void EndBy(int signal) {
  std::signal(signal, SIG_DFL);
  kill(getpid(), signal);
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, signal);
  for (;;) sigsuspend(&all);
}

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { Run(); });
}

StopSignals::~StopSignals() {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kOver;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void StopSignals::Keep() {
  const std::lock_guard lock(mutex_);
  state_ = State::kKeeping;
}

void StopSignals::Wait() {
  std::unique_lock lock(mutex_);
  kept_.wait(lock, [&] { return state_ == State::kKept; });
}

void StopSignals::Run() {
  for (;;) {
    int signal = 0;
    sigwait(&signals_, &signal);
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOver) return;
    if (state_ != State::kKeeping) EndBy(signal);
    state_ = State::kKept;
    kept_.notify_all();
  }
}

}  // namespace kvasir
