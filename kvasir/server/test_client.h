// TestClient: a blocking HTTP client for tests, which can also misbehave.
// Deliberately knows no chat: it returns what came over the wire.
#ifndef KVASIR_SERVER_TEST_CLIENT_H_
#define KVASIR_SERVER_TEST_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

struct WireResponse {
  int status = 0;       // 0: no response came
  std::string headers;  // all lines, as sent
  std::string body;     // of a chunked one: the chunks joined
  bool is_complete = false;

  // The value of a header, or "".
  std::string Header(std::string_view name) const;
};

class TestClient {
 public:
  // Connects to 127.0.0.1. A receive buffer other than 0 makes the client a small eater. Every wait
  // ends after a minute, so that a server that hangs is a failed test.
  explicit TestClient(uint16_t port, int receive_buffer_bytes = 0);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool Send(std::string_view bytes);
  // A request with Content-Length, keeping the connection alive.
  bool SendRequest(std::string_view method, std::string_view path, std::string_view body = "");
  // Ends the sending side only.
  void HalfClose();
  // Ends both, as a program does that exits: the peer first sees nothing but the end of our
  // sending.
  void Close();
  // Breaks the connection with a reset.
  void Reset();

  // The next final response; interim ones (100 Continue) are counted and skipped.
  WireResponse Read(bool is_head = false);
  // The header of the next response alone, whose events ReadEvent then takes one by one.
  WireResponse ReadHead();
  // The next event of a chunked stream, without its blank line; false at its end.
  bool ReadEvent(std::string* event);
  // Reads until all bytes received since the last Read contain `text`.
  bool ReadUntil(std::string_view text);
  // Takes everything until the server ends the connection; false if it does not.
  bool ReadToEnd();
  // True if the server ends the connection without sending anything more.
  bool ReadsEnd();

  // What has come since the last Read.
  const std::string& received() const { return received_; }
  int interim_responses() const { return interim_responses_; }

 private:
  bool Receive();
  bool ReceiveBytes(size_t size_bytes);
  // Appends one chunk; false after the last.
  bool ReadChunk(std::string* body);
  bool ReadChunks(std::string* body);

  int socket_ = -1;
  std::string received_;
  std::string events_;  // of the stream, not asked for yet
  bool is_last_chunk_ = false;
  int interim_responses_ = 0;
};

// One request on a connection of its own.
WireResponse Exchange(uint16_t port, std::string_view method, std::string_view path,
                      std::string_view body = "");

}  // namespace kvasir

#endif  // KVASIR_SERVER_TEST_CLIENT_H_
