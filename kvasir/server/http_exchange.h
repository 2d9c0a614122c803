// HttpExchange: the bytes of one response on their way from the thread that makes them to the
// thread that owns the socket, and the news that the client is gone on their way back.
// Deliberately ignorant of HTTP and of sockets.
#ifndef KVASIR_SERVER_HTTP_EXCHANGE_H_
#define KVASIR_SERVER_HTTP_EXCHANGE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace kvasir {

// Shared by its two sides because either may be the last to let go of it. THREADS: one producer
// and one consumer at a time.
class HttpExchange {
 public:
  // `wake` tells the consumer that there is something to take. It is called under the lock, must
  // not call back, and is dropped by Close. At most `max_unsent_bytes` plus one piece are held.
  HttpExchange(size_t max_unsent_bytes, std::function<void()> wake);

  // Producer. Waits while too much is unsent. False, and nothing added, once the client is gone.
  bool Append(std::string_view bytes);
  // The same without waiting, for producers that ask is_full or WaitForRoom from time to time.
  bool AppendNow(std::string_view bytes);
  // Whether too much is unsent. False once the client is gone. THREADS: any.
  bool is_full() const;
  void WaitForRoom();
  // Producer: no more bytes come. `keeps_alive` false: close the connection behind them.
  void End(bool keeps_alive);
  // Producer: whether the consumer wants some bytes, to see whether the client is there; once per
  // AskForBytes.
  bool TakeAsked() { return is_asked_.exchange(false, std::memory_order_relaxed); }
  // True once the consumer has called Close.
  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  struct Taken {
    std::string bytes;
    bool is_ended = false;  // nothing follows these bytes
    bool keeps_alive = true;
  };
  // Consumer: all that is there, possibly nothing. It counts as unsent until Sent.
  Taken Take();
  // Consumer: only bytes that are sent tell whether the client is there.
  void AskForBytes() { is_asked_.store(true, std::memory_order_relaxed); }
  // Consumer: this much of what was taken has been handed to the system.
  void Sent(size_t bytes);
  // Consumer: the client is gone, or the response has been sent. Wakes the producer.
  void Close();

 private:
  const size_t max_unsent_bytes_;
  bool has_room() const { return pending_.size() + taken_bytes_ < max_unsent_bytes_; }

  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::function<void()> wake_;
  std::string pending_;
  size_t taken_bytes_ = 0;    // taken and not yet sent
  bool is_wake_due_ = false;  // woken, and Take has not come yet
  bool is_ended_ = false;
  bool keeps_alive_ = true;
  std::atomic<bool> is_asked_ = false;
  std::atomic<bool> is_closed_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_HTTP_EXCHANGE_H_
