#include "kvasir/server/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

std::string WireResponse::Header(std::string_view name) const {
  const std::string key = "\r\n" + std::string(name) + ": ";
  const size_t at = headers.find(key);
  if (at == std::string::npos) return {};
  const size_t begin = at + key.size();
  return headers.substr(begin, headers.find("\r\n", begin) - begin);
}

TestClient::TestClient(uint16_t port, int receive_buffer_bytes) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  KVASIR_CHECK(socket_ >= 0);
  if (receive_buffer_bytes > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                 sizeof(receive_buffer_bytes));
  }
  const timeval minute{60, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof(minute));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // A failure shows in the first Send or Read.
  (void)::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

TestClient::~TestClient() { Close(); }

bool TestClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool TestClient::SendRequest(std::string_view method, std::string_view path,
                             std::string_view body) {
  std::string request = std::string(method) + " " + std::string(path) +
                        " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  if (!body.empty()) request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return Send(request + "\r\n" + std::string(body));
}

void TestClient::HalfClose() { ::shutdown(socket_, SHUT_WR); }

void TestClient::Close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void TestClient::Reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

bool TestClient::Receive() {
  std::array<char, 4096> bytes;
  ssize_t got;
  do {
    got = ::recv(socket_, bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  received_.append(bytes.data(), static_cast<size_t>(got));
  return true;
}

bool TestClient::ReadUntil(std::string_view text) {
  while (received_.find(text) == std::string::npos) {
    if (!Receive()) return false;
  }
  return true;
}

bool TestClient::ReadToEnd() {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    // A reset ends the connection just as well.
    if (got <= 0) return got == 0 || errno == ECONNRESET;
    received_.append(bytes.data(), static_cast<size_t>(got));
  }
}

bool TestClient::ReadsEnd() {
  std::array<char, 1> byte;
  return received_.empty() && ::recv(socket_, byte.data(), byte.size(), 0) == 0;
}

bool TestClient::ReceiveBytes(size_t size_bytes) {
  while (received_.size() < size_bytes) {
    if (!Receive()) return false;
  }
  return true;
}

bool TestClient::ReadChunk(std::string* body) {
  if (!ReadUntil("\r\n")) return false;
  const size_t line = received_.find("\r\n");
  const size_t size_bytes = std::strtoul(received_.c_str(), nullptr, 16);
  if (!ReceiveBytes(line + 2 + size_bytes + 2)) return false;
  body->append(received_, line + 2, size_bytes);
  received_.erase(0, line + 2 + size_bytes + 2);
  is_last_chunk_ = size_bytes == 0;
  return !is_last_chunk_;
}

bool TestClient::ReadChunks(std::string* body) {
  while (ReadChunk(body)) {
  }
  return is_last_chunk_;
}

WireResponse TestClient::ReadHead() {
  WireResponse response;
  do {
    if (!ReadUntil("\r\n\r\n")) return response;
    const size_t end = received_.find("\r\n\r\n");
    response.headers = received_.substr(0, end + 2);
    received_.erase(0, end + 4);
    response.status = std::atoi(response.headers.c_str() + response.headers.find(' '));
    interim_responses_ += response.status < 200 ? 1 : 0;
  } while (response.status < 200);
  is_last_chunk_ = false;
  return response;
}

bool TestClient::ReadEvent(std::string* event) {
  size_t end;
  while ((end = events_.find("\n\n")) == std::string::npos) {
    if (is_last_chunk_ || !ReadChunk(&events_)) return false;
  }
  *event = events_.substr(0, end);
  events_.erase(0, end + 2);
  return true;
}

WireResponse TestClient::Read(bool is_head) {
  WireResponse response = ReadHead();
  if (response.status == 0) return response;
  const std::string length = response.Header("Content-Length");
  if (is_head || response.status == 204) {
    response.is_complete = true;
  } else if (!length.empty()) {
    const size_t size_bytes = std::strtoul(length.c_str(), nullptr, 10);
    response.is_complete = ReceiveBytes(size_bytes);
    response.body = received_.substr(0, size_bytes);
    received_.erase(0, size_bytes);
  } else if (response.Header("Transfer-Encoding") == "chunked") {
    response.is_complete = ReadChunks(&response.body);
  } else {
    while (Receive()) {
    }
    response.body = std::exchange(received_, {});
    response.is_complete = true;
  }
  return response;
}

WireResponse Exchange(uint16_t port, std::string_view method, std::string_view path,
                      std::string_view body) {
  TestClient client(port);
  if (!client.SendRequest(method, path, body)) return {};
  return client.Read(method == "HEAD");
}

}  // namespace kvasir
