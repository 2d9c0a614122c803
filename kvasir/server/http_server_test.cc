// HttpServer over real sockets on the loopback, with a handler that does what each test wants.
#include "kvasir/server/http_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "kvasir/base/rng.h"
#include "kvasir/server/test_client.h"

namespace kvasir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Hands every request to the test's own thread.
struct Arrival {
  HttpRequest request;
  HttpReply reply;
};

class Inbox {
 public:
  void Put(HttpRequest request, HttpReply reply) {
    const std::lock_guard lock(mutex_);
    arrivals_.push_back(std::make_unique<Arrival>(Arrival{std::move(request), std::move(reply)}));
    arrived_.notify_one();
  }
  // Null after a minute.
  std::unique_ptr<Arrival> Take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, seconds(60), [this] { return !arrivals_.empty(); })) return {};
    auto arrival = std::move(arrivals_.front());
    arrivals_.erase(arrivals_.begin());
    return arrival;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::unique_ptr<Arrival>> arrivals_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.port = 0;
    options.refusal = [](const HttpRequest& head, int status, const std::string& message) {
      return HttpResponse{.status = status,
                          .body = std::to_string(status) + " " + head.path + " " + message};
    };
    auto server =
        HttpServer::Start(std::move(options), [this](HttpRequest request, HttpReply reply) {
          if (answers_all_ || request.path == "/echo") {
            return reply.Send({.body = request.method + " " + request.body});
          }
          inbox_.Put(std::move(request), std::move(reply));
        });
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (server_) server_->Stop(seconds(0));
  }
  uint16_t port() const { return server_->port(); }

  // Waits until the reply knows that its client has gone: an append then fails. Bounded by the
  // write timeout of the server, not by a sleep here.
  static bool BecomesGone(HttpReply& reply) {
    if (!reply.is_started()) (void)reply.StartStream({});
    const std::string piece(64 << 10, 'x');
    for (int64_t i = 0; i < 100'000; ++i) {
      if (!reply.Write(piece)) return true;
    }
    return false;
  }

  bool answers_all_ = false;  // set before Start: what other paths ask is answered too
  Inbox inbox_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  TestClient client(port());
  for (const std::string body : {"one", "two"}) {
    ASSERT_TRUE(client.SendRequest("POST", "/echo?query=1", body));
    const WireResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST " + body);
    EXPECT_EQ(response.Header("Connection"), "keep-alive");
    EXPECT_EQ(response.Header("Content-Type"), "application/json");
  }
}

// Whoever comes while there are no file descriptors is served when there are; the log is not
// flooded meanwhile.
TEST_F(HttpServerTest, RunningOutOfFileDescriptorsEndsNothing) {
  std::atomic<int> warnings = 0;
  Start({.log = [&](LogLevel, std::string_view) { ++warnings; }});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {.rlim_cur = 200, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  while (true) {
    const int fd = dup(STDERR_FILENO);
    if (fd < 0) break;
    taken.push_back(fd);
  }
  ASSERT_FALSE(taken.empty());
  close(taken.back());
  taken.pop_back();
  TestClient client(port());  // takes the last one
  const bool is_sent = client.SendRequest("POST", "/echo", "still here");
  std::this_thread::sleep_for(milliseconds(450));
  const int warned = warnings;
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(is_sent);
  EXPECT_EQ(client.Read().body, "POST still here");
  EXPECT_EQ(warned, 1);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  TestClient client(port());
  std::string burst;
  for (const char* body : {"a", "b", "c"}) {
    burst += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n" + std::string(body);
  }
  // The first waits for us, so that the rest is there while an answer is being made.
  ASSERT_TRUE(client.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + burst));
  auto first = inbox_.Take();
  ASSERT_NE(first, nullptr);
  first->reply.Send({.body = "first"});
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "POST a");
  EXPECT_EQ(client.Read().body, "POST b");
  EXPECT_EQ(client.Read().body, "POST c");
}

TEST_F(HttpServerTest, ConnectionCloseAndHttp10EndTheConnection) {
  Start();
  for (const char* request : {"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                              "GET /echo HTTP/1.0\r\n\r\n"}) {
    TestClient client(port());
    ASSERT_TRUE(client.Send(request));
    const WireResponse response = client.Read();
    EXPECT_EQ(response.body, "GET ");
    EXPECT_EQ(response.Header("Connection"), "close");
    EXPECT_TRUE(client.ReadsEnd());
  }
}

TEST_F(HttpServerTest, ProxyFormOfTheTarget) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET http://host:1/echo?x HTTP/1.1\r\nHost: host\r\n\r\n"));
  EXPECT_EQ(client.Read().body, "GET ");
  // Without a path it is the first one, whatever the query says.
  for (const char* target : {"http://host", "http://host?a=/b", "/?a"}) {
    ASSERT_TRUE(client.Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: host\r\n\r\n"));
    const auto arrival = inbox_.Take();
    ASSERT_NE(arrival, nullptr);
    EXPECT_EQ(arrival->request.path, "/") << target;
    arrival->reply.Send({.body = "root"});
    EXPECT_EQ(client.Read().body, "root");
  }
}

TEST(HttpMessage, Urls) {
  EXPECT_EQ(PercentDecoded("a%2Fb%c3%A4+%"), "a/b\xc3\xa4+%");
  EXPECT_EQ(PercentDecoded("%4%zz%-1"), "%4%zz%-1");
  EXPECT_EQ(QueryValue("ab=1&a=%32&a=3", "a"), "2");
  EXPECT_EQ(QueryValue("ab&=&a", "a"), "");
  EXPECT_EQ(HostAndPort("localhost", 80), "localhost:80");
  EXPECT_EQ(HostAndPort("::1", 80), "[::1]:80");
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.SendRequest("HEAD", "/echo"));
  EXPECT_EQ(client.Read(true).Header("Content-Length"), "5");
  ASSERT_TRUE(client.SendRequest("GET", "/echo"));
  EXPECT_EQ(client.Read().body, "GET ");
}

TEST_F(HttpServerTest, StreamsAreChunkedAndTheConnectionGoesOn) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.SendRequest("GET", "/stream"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  ASSERT_TRUE(arrival->reply.StartStream({.content_type = "text/event-stream"}));
  ASSERT_TRUE(arrival->reply.Write("one"));
  // Seen before the stream ends: nothing is held back.
  ASSERT_TRUE(client.ReadUntil("one"));
  ASSERT_TRUE(arrival->reply.Write(""));
  ASSERT_TRUE(arrival->reply.Write("two"));
  arrival->reply.Finish();
  const WireResponse response = client.Read();
  EXPECT_EQ(response.body, "onetwo");
  EXPECT_TRUE(response.is_complete);
  ASSERT_TRUE(client.SendRequest("GET", "/echo"));
  EXPECT_EQ(client.Read().body, "GET ");
}

TEST_F(HttpServerTest, AStreamForHttp10EndsWithTheConnection) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.Send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  ASSERT_TRUE(arrival->reply.StartStream({}));
  ASSERT_TRUE(arrival->reply.Write("text"));
  arrival->reply.Finish();
  const WireResponse response = client.Read();
  EXPECT_EQ(response.Header("Transfer-Encoding"), "");
  EXPECT_EQ(response.body, "text");
}

TEST_F(HttpServerTest, AnAbandonedReplyIs500AndAnAbandonedStreamIsIncomplete) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.SendRequest("GET", "/drop"));
  ASSERT_NE(inbox_.Take(), nullptr);
  EXPECT_EQ(client.Read().status, 500);
  ASSERT_TRUE(client.SendRequest("GET", "/drop"));
  {
    auto arrival = inbox_.Take();
    ASSERT_NE(arrival, nullptr);
    ASSERT_TRUE(arrival->reply.StartStream({}));
    ASSERT_TRUE(arrival->reply.Write("half"));
  }
  const WireResponse response = client.Read();
  EXPECT_EQ(response.body, "half");
  EXPECT_FALSE(response.is_complete);
}

TEST_F(HttpServerTest, MalformedRequestsAre400) {
  Start();
  for (const char* bytes :
       {"nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET /echo HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nhost: b\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\xfc\x03\r\n\r\n"}) {
    TestClient client(port());
    ASSERT_TRUE(client.Send(bytes));
    client.HalfClose();
    const WireResponse response = client.Read();
    EXPECT_EQ(response.status, 400) << bytes;
    EXPECT_EQ(response.body.substr(0, 4), "400 ") << bytes;
    EXPECT_TRUE(client.ReadsEnd()) << bytes;
  }
}

// Every connection ends by itself, whatever was sent, and the server is there afterwards.
TEST_F(HttpServerTest, DamagedRequestsEndTheirConnectionOnly) {
  answers_all_ = true;
  Start();
  const std::string valid =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n"
      "GET /echo?x=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::string damaged = valid;
    const uint64_t damages = 1 + Philox4x32(seed, 0)[0] % 4;
    for (uint64_t i = 1; i <= damages; ++i) {
      const auto random = Philox4x32(seed, i);
      const size_t at = random[0] % damaged.size();
      switch (random[1] % 3) {
        case 0:
          damaged[at] = static_cast<char>(random[2]);
          break;
        case 1:
          damaged.erase(at, random[2] % 20);
          break;
        default:
          damaged.insert(at, 1 + random[2] % 5, static_cast<char>(random[3]));
      }
    }
    TestClient client(port());
    (void)client.Send(damaged);
    client.HalfClose();
    EXPECT_TRUE(client.ReadToEnd());
  }
  EXPECT_EQ(Exchange(port(), "GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, SaysBeforeItStartsThatAPortIsTaken) {
  EXPECT_TRUE(HttpServer::Check({.port = 0}).ok());
  Start();
  const Status taken = HttpServer::Check({.port = port()});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kIo);
  EXPECT_NE(taken.error().message.find("127.0.0.1:" + std::to_string(port())), std::string::npos);
  EXPECT_NE(taken.error().message.find("try another port"), std::string::npos);
  EXPECT_FALSE(HttpServer::Start({.port = port()}, {}).ok());
  const Status elsewhere = HttpServer::Check({.host = "192.0.2.1", .port = 0});
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_NE(elsewhere.error().message.find("an address of this machine"), std::string::npos);
}

TEST_F(HttpServerTest, LimitsOfHeaderAndBody) {
  HttpServerOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 100;
  Start(options);
  EXPECT_EQ(Exchange(port(), "GET", "/echo?" + std::string(2000, 'x')).status, 431);
  EXPECT_EQ(Exchange(port(), "GET", "/echo?" + std::string(1 << 20, 'x')).status, 431);
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(100, 'x')).status, 200);
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(101, 'x')).status, 413);
  // Larger than any buffer on the way: the answer still arrives.
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(8 << 20, 'x')).status, 413);

  TestClient chunked(port());
  ASSERT_TRUE(chunked.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "40\r\n" +
      std::string(0x40, 'x') + "\r\n" + "40\r\n" + std::string(0x40, 'x') + "\r\n0\r\n\r\n"));
  EXPECT_EQ(chunked.Read().status, 413);
}

TEST_F(HttpServerTest, LimitOfAllBodiesTogether) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  options.max_total_body_bytes = 100;
  Start(options);
  TestClient first(port());
  ASSERT_TRUE(first.SendRequest("POST", "/wait", std::string(60, 'x')));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  const WireResponse refused = Exchange(port(), "POST", "/echo", std::string(60, 'x'));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(40, 'x')).status, 200);
  arrival->reply.Send({.body = "done"});
  EXPECT_EQ(first.Read().body, "done");
  arrival.reset();
  // Its bytes are free again, on the same connection too.
  ASSERT_TRUE(first.SendRequest("POST", "/echo", std::string(60, 'x')));
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(100, 'x')).status, 200);
}

// A body whose client is gone is there as long as somebody has it.
TEST_F(HttpServerTest, BodiesTakeRoomUntilNobodyHasThem) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  options.max_total_body_bytes = 100;
  Start(options);
  auto client = std::make_unique<TestClient>(port());
  ASSERT_TRUE(client->SendRequest("POST", "/wait", std::string(60, 'x')));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  client.reset();
  EXPECT_TRUE(BecomesGone(arrival->reply));
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(60, 'x')).status, 503);
  arrival.reset();
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(60, 'x')).status, 200);
}

// Where others might see another end of a request than we do, it is none.
TEST_F(HttpServerTest, BodiesEndInOneWayOnly) {
  Start();
  for (const auto& [headers, status] :
       {std::pair{"Transfer-Encoding: identity\r\n", 501},
        std::pair{"Transfer-Encoding: gzip, chunked\r\n", 501},
        std::pair{"Transfer-Encoding: xchunked\r\n", 501},
        std::pair{"Transfer-Encoding: chunked, chunked\r\n", 501},
        std::pair{"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
        std::pair{"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400},
        std::pair{"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400},
        std::pair{"Transfer-Encoding: CHUNKED\r\n", 200}}) {
    TestClient client(port());
    ASSERT_TRUE(client.Send(std::string("POST /echo HTTP/1.1\r\nHost: x\r\n") + headers +
                            "\r\n3\r\nabc\r\n0\r\n\r\n"));
    client.HalfClose();
    EXPECT_EQ(client.Read().status, status) << headers;
    EXPECT_TRUE(client.ReadsEnd()) << headers;  // no second answer
  }
  TestClient nameless(port());
  ASSERT_TRUE(nameless.Send("GET /echo HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(nameless.Read().status, 400);
  TestClient old(port());
  ASSERT_TRUE(old.Send("GET /echo HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old.Read().status, 200);
  TestClient chunked(port());
  ASSERT_TRUE(
      chunked.Send("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3\r\nabc\r\n0\r\n\r\n"));
  EXPECT_EQ(chunked.Read().status, 400);
}

// What was announced and did not come keeps nobody out.
TEST_F(HttpServerTest, BodiesTakeRoomAsTheyCome) {
  HttpServerOptions options;
  options.max_body_bytes = 100;
  options.max_total_body_bytes = 100;
  Start(options);
  TestClient announced(port()), chunked(port()), waiting(port());
  ASSERT_TRUE(announced.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"));
  ASSERT_TRUE(chunked.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(100, 'x')).status, 200);
  // A chunked request holds what it has, not what it might have had.
  ASSERT_TRUE(
      waiting.Send("POST /wait HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3\r\nabc\r\n0\r\n\r\n"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(97, 'x')).status, 200);
  EXPECT_EQ(Exchange(port(), "POST", "/echo", std::string(98, 'x')).status, 503);
  // Who comes to more than there is room for is refused then.
  ASSERT_TRUE(announced.Send(std::string(99, 'x')));
  EXPECT_EQ(announced.Read().status, 503);
  arrival->reply.Send({.body = "done"});
  EXPECT_EQ(waiting.Read().body, "done");
}

TEST_F(HttpServerTest, ChunkedRequestBodies) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n2;extension=1\r\nde\r\n0\r\n\r\n"));
  EXPECT_EQ(client.Read().body, "POST abcde");
}

TEST_F(HttpServerTest, TrailersAreNoHeaders) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(
      client.Send("POST /wait HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n0\r\nHost: y\r\nx-api-key: mine\r\n\r\n"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  EXPECT_EQ(arrival->request.body, "abc");
  EXPECT_EQ(arrival->request.Header("Host"), "x");
  EXPECT_EQ(arrival->request.Header("x-api-key"), "");
  arrival->reply.Send({.body = "done"});
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"));
  ASSERT_TRUE(client.ReadUntil("100 Continue"));
  ASSERT_TRUE(client.Send("body"));
  EXPECT_EQ(client.Read().body, "POST body");
  EXPECT_EQ(client.interim_responses(), 1);
}

TEST_F(HttpServerTest, AHalfClosedClientGetsItsAnswer) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.SendRequest("GET", "/wait"));
  client.HalfClose();
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  // The probe has arrived, so the server has seen the half-close, and yet goes on.
  ASSERT_TRUE(client.ReadUntil("100 Continue\r\n\r\n"));
  EXPECT_FALSE(arrival->reply.is_client_gone());
  arrival->reply.Send({.body = "here"});
  EXPECT_EQ(client.Read().body, "here");
  EXPECT_EQ(client.interim_responses(), 1);
  EXPECT_TRUE(client.ReadsEnd());
}

TEST_F(HttpServerTest, AClosedClientIsNoticedWithoutSendingAnAnswer) {
  Start();
  for (const bool is_reset : {false, true}) {
    auto client = std::make_unique<TestClient>(port());
    ASSERT_TRUE(client->SendRequest("GET", "/wait"));
    auto arrival = inbox_.Take();
    ASSERT_NE(arrival, nullptr);
    is_reset ? client->Reset() : client->Close();
    // Nothing of the answer exists yet; only the server's own probe can find out. A yield, not a
    // sleep: what is waited for is another thread's work.
    const auto deadline = std::chrono::steady_clock::now() + seconds(60);
    while (!arrival->reply.is_client_gone() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(arrival->reply.is_client_gone()) << is_reset;
  }
}

// Old clients end a body with a line more, which belongs to the next request.
TEST_F(HttpServerTest, AClosedClientIsNoticedBehindWhatItSentLast) {
  Start();
  auto client = std::make_unique<TestClient>(port());
  ASSERT_TRUE(client->SendRequest("GET", "/wait"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  ASSERT_TRUE(client->Send("\r\n"));
  client->Close();
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (!arrival->reply.is_client_gone() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(arrival->reply.is_client_gone());
}

TEST_F(HttpServerTest, AClosedClientOfAStreamIsNoticed) {
  Start();
  for (const bool is_reset : {false, true}) {
    auto client = std::make_unique<TestClient>(port());
    ASSERT_TRUE(client->SendRequest("GET", "/stream"));
    auto arrival = inbox_.Take();
    ASSERT_NE(arrival, nullptr);
    ASSERT_TRUE(arrival->reply.StartStream({}));
    ASSERT_TRUE(arrival->reply.Write("begin"));
    ASSERT_TRUE(client->ReadUntil("begin"));
    is_reset ? client->Reset() : client->Close();
    EXPECT_TRUE(BecomesGone(arrival->reply)) << is_reset;
  }
}

// Only bytes that are sent tell it from one that closed its sending side.
TEST_F(HttpServerTest, AClientOfAStreamThatClosesAsksForASign) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.SendRequest("GET", "/stream"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  ASSERT_TRUE(arrival->reply.StartStream({}));
  ASSERT_TRUE(arrival->reply.Write("begin"));
  ASSERT_TRUE(client.ReadUntil("begin"));
  EXPECT_FALSE(arrival->reply.TakeAsked());
  client.HalfClose();
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  bool is_asked = false;
  while (!is_asked && std::chrono::steady_clock::now() < deadline) {
    is_asked = arrival->reply.TakeAsked();
    std::this_thread::yield();
  }
  EXPECT_TRUE(is_asked);
  EXPECT_FALSE(arrival->reply.TakeAsked());  // once
  EXPECT_FALSE(arrival->reply.is_client_gone());
  arrival->reply.Finish();
  EXPECT_TRUE(client.ReadUntil("0\r\n\r\n"));
}

TEST_F(HttpServerTest, AClientThatDoesNotReadHoldsBackTheProducerAndIsCutOff) {
  HttpServerOptions options;
  options.max_unsent_bytes = 64 << 10;
  options.send_buffer_bytes = 16 << 10;
  options.write_timeout = milliseconds(200);
  Start(options);
  TestClient client(port(), 4096);
  ASSERT_TRUE(client.SendRequest("GET", "/stream"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  ASSERT_TRUE(arrival->reply.StartStream({}));
  const std::string piece(16 << 10, 'x');
  int64_t accepted = 0;
  while (accepted < 100'000'000 && arrival->reply.Write(piece)) accepted += 16 << 10;
  // Far less than was offered: our buffer, the two system buffers (which the system may round up
  // generously), and nothing else.
  EXPECT_LT(accepted, 4'000'000);
}

TEST_F(HttpServerTest, ASlowReaderGetsEverything) {
  HttpServerOptions options;
  options.max_unsent_bytes = 4096;
  options.send_buffer_bytes = 4096;
  Start(options);
  TestClient client(port(), 4096);
  ASSERT_TRUE(client.SendRequest("GET", "/stream"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  auto read = std::async(std::launch::async, [&] { return client.Read(); });
  std::string sent;
  ASSERT_TRUE(arrival->reply.StartStream({}));
  for (int i = 0; i < 5000; ++i) {
    const std::string piece = std::to_string(i) + ",";
    ASSERT_TRUE(arrival->reply.Write(piece));
    sent += piece;
  }
  arrival->reply.Finish();
  EXPECT_EQ(read.get().body, sent);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSo) {
  HttpServerOptions options;
  options.max_connections = 2;
  Start(options);
  TestClient a(port());
  TestClient b(port());
  // Answered, so accepted.
  for (TestClient* client : {&a, &b}) {
    ASSERT_TRUE(client->SendRequest("GET", "/echo"));
    ASSERT_EQ(client->Read().status, 200);
  }
  const WireResponse refused = Exchange(port(), "GET", "/echo");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  ASSERT_TRUE(a.SendRequest("GET", "/echo"));
  EXPECT_EQ(a.Read().status, 200);
}

TEST_F(HttpServerTest, SilentClientsAreDisconnected) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(50);
  options.body_timeout = milliseconds(50);
  Start(options);
  TestClient silent(port());
  EXPECT_TRUE(silent.ReadsEnd());
  TestClient partial(port());
  ASSERT_TRUE(partial.Send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"));
  EXPECT_TRUE(partial.ReadsEnd());
}

TEST_F(HttpServerTest, StopEndsIdleConnectionsAndRunningAnswers) {
  Start();
  TestClient idle(port());
  ASSERT_TRUE(idle.SendRequest("GET", "/echo"));
  ASSERT_EQ(idle.Read().status, 200);
  TestClient waiting(port());
  ASSERT_TRUE(waiting.SendRequest("GET", "/wait"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  server_->StopAccepting();
  EXPECT_TRUE(idle.ReadsEnd());
  arrival->reply.Send({.body = "last"});
  EXPECT_EQ(waiting.Read().body, "last");
  EXPECT_TRUE(waiting.ReadsEnd());
  server_->Stop(seconds(60));
}

TEST_F(HttpServerTest, StopClosesWhoIsNeverAnswered) {
  Start();
  TestClient client(port());
  ASSERT_TRUE(client.SendRequest("GET", "/wait"));
  auto arrival = inbox_.Take();
  ASSERT_NE(arrival, nullptr);
  server_->Stop(milliseconds(0));
  EXPECT_TRUE(arrival->reply.is_client_gone());
  EXPECT_TRUE(client.ReadsEnd());
  server_.reset();
  // The reply outlives the server.
  arrival->reply.Send({.body = "too late"});
}

TEST(HttpServerStart, SaysWhatIsWrong) {
  const auto ignore = [](HttpRequest, HttpReply) {};
  HttpServerOptions options;
  options.host = "no such host!";
  auto server = HttpServer::Start(options, ignore);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, ErrorCode::kIo);
  EXPECT_NE(server.error().message.find("no such host!"), std::string::npos);

  options = {};
  options.port = 0;
  auto first = HttpServer::Start(options, ignore);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  auto second = HttpServer::Start(options, ignore);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);

  options.max_header_bytes = 1;
  EXPECT_EQ(HttpServer::Start(options, ignore).error().code, ErrorCode::kInvalidArgument);
}

TEST(HttpMessage, ChunksAndHeads) {
  EXPECT_EQ(FormatChunk("0123456789abcdefX"), "11\r\n0123456789abcdefX\r\n");
  const std::string head = FormatHead({.status = 204, .content_type = ""}, 0, {});
  EXPECT_EQ(head.find("HTTP/1.1 204 No Content\r\n"), 0u);
  EXPECT_EQ(head.find("Content-"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
