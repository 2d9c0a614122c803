#include "kvasir/server/http_exchange.h"

#include <utility>

namespace kvasir {

HttpExchange::HttpExchange(size_t max_unsent_bytes, std::function<void()> wake)
    : max_unsent_bytes_(max_unsent_bytes), wake_(std::move(wake)) {}

bool HttpExchange::Append(std::string_view bytes) {
  WaitForRoom();
  return AppendNow(bytes);
}

void HttpExchange::WaitForRoom() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return is_closed() || has_room(); });
}

bool HttpExchange::is_full() const {
  const std::lock_guard lock(mutex_);
  return !is_closed() && !has_room();
}

bool HttpExchange::AppendNow(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (is_closed()) return false;
  pending_ += bytes;
  if (wake_ && !std::exchange(is_wake_due_, true)) wake_();
  return true;
}

void HttpExchange::End(bool keeps_alive) {
  const std::lock_guard lock(mutex_);
  is_ended_ = true;
  keeps_alive_ = keeps_alive;
  if (wake_ && !std::exchange(is_wake_due_, true)) wake_();
}

HttpExchange::Taken HttpExchange::Take() {
  const std::lock_guard lock(mutex_);
  is_wake_due_ = false;
  taken_bytes_ += pending_.size();
  return {std::exchange(pending_, {}), is_ended_, keeps_alive_};
}

void HttpExchange::Sent(size_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_bytes_ -= bytes;
  room_.notify_one();
}

void HttpExchange::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_.store(true, std::memory_order_release);
  wake_ = nullptr;
  pending_.clear();
  room_.notify_all();
}

}  // namespace kvasir
