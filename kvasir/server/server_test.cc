// The whole server over real sockets, with a tiny model behind it.
#include "kvasir/server/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/server/test_client.h"
#include "kvasir/server/test_json.h"
#include "kvasir/server/test_model.h"

namespace kvasir {
namespace {

using std::chrono::milliseconds;

constexpr const char* kChat = "/v1/chat/completions";

Json Message(const char* role, std::string content) {
  return Json::Object{{"role", role}, {"content", std::move(content)}};
}

// The answers of random weights are bytes of all kinds; a bias makes them the letter 'a', which
// survives the way through text and back into tokens.
Json LetterRequest(Json messages, int64_t max_tokens) {
  return Json::Object{{"messages", std::move(messages)},
                      {"max_tokens", max_tokens},
                      {"temperature", 0},
                      {"logit_bias", Json::Object{{"97", 100}}}};
}

// The events of a stream: JSON, or the text behind "data: " where it is none.
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> events;
  for (const std::string& block : Blocks(body)) {
    if (block.starts_with("data: ")) events.push_back(block.substr(6));
  }
  return events;
}

// Log lines, to wait for what shows nowhere else.
class LogWatch {
 public:
  LogSink Sink() {
    return [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
      added_.notify_all();
    };
  }
  // The first line that contains `text`; empty after a minute.
  std::string WaitFor(const std::string& text) {
    std::unique_lock lock(mutex_);
    std::string found;
    added_.wait_for(lock, std::chrono::seconds(60), [&] {
      for (const std::string& line : lines_) {
        if (line.find(text) != std::string::npos) found = line;
      }
      return !found.empty();
    });
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::string> lines_;
};

class ServerTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}, size_t kv_budget_bytes = 64 << 20) {
    auto bundle = LoadTestModel(kv_budget_bytes);
    ASSERT_TRUE(bundle.ok()) << bundle.error().message;
    bundle_ = *std::move(bundle);
    options.port = 0;
    options.model_name = "tiny";
    options.log = log_.Sink();
    auto server = Server::Start(bundle_.get(), options);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }
  WireResponse Chat(const Json& request) {
    return Exchange(server_->port(), "POST", kChat, request.Dump());
  }
  // Expects an error of OpenAI's shape and returns what is inside.
  Json ErrorOf(const WireResponse& response, int status) {
    EXPECT_EQ(response.status, status) << response.body;
    return At(Parsed(response.body), {"error"});
  }

  LogWatch log_;
  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, HealthAndModels) {
  Start();
  const uint16_t port = server_->port();
  for (const char* path : {"/health", "/v1/health"}) {
    const WireResponse response = Exchange(port, "GET", path);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, R"({"status":"ok"})");
  }
  for (const char* path : {"/models", "/v1/models"}) {
    const Json models = Parsed(Exchange(port, "GET", path).body);
    EXPECT_EQ(At(models, {"data", "0", "id"}), Json("tiny"));
    EXPECT_EQ(At(models, {"data", "0", "max_model_len"}), Json(4096));
  }
  EXPECT_EQ(Exchange(port, "HEAD", "/health").status, 200);
}

TEST_F(ServerTest, UnknownPathsAndWrongMethods) {
  Start();
  const uint16_t port = server_->port();
  EXPECT_EQ(At(ErrorOf(Exchange(port, "GET", "/v2/none"), 404), {"code"}), Json("not_found"));
  const WireResponse get = Exchange(port, "GET", kChat);
  EXPECT_EQ(At(ErrorOf(get, 405), {"type"}), Json("invalid_request_error"));
  EXPECT_EQ(get.Header("Allow"), "POST, OPTIONS");
  ErrorOf(Exchange(port, "POST", "/health", "{}"), 405);
  const WireResponse options = Exchange(port, "OPTIONS", kChat);
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.Header("Allow"), "POST, OPTIONS");
}

TEST_F(ServerTest, AnswersWhole) {
  Start();
  for (const char* path : {kChat, "/chat/completions"}) {
    const WireResponse response =
        Exchange(server_->port(), "POST", path,
                 LetterRequest(Json::Array{Message("user", "Hello")}, 5).Dump());
    ASSERT_EQ(response.status, 200) << response.body;
    const Json body = Parsed(response.body);
    EXPECT_EQ(At(body, {"object"}), Json("chat.completion"));
    EXPECT_EQ(At(body, {"model"}), Json("tiny"));
    EXPECT_EQ(At(body, {"id"}).as_string().substr(0, 9), "chatcmpl-");
    EXPECT_EQ(At(body, {"choices", "0", "message", "content"}), Json("aaaaa"));
    EXPECT_EQ(At(body, {"choices", "0", "message", "role"}), Json("assistant"));
    EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), Json("length"));
    // One token per byte of "<user>Hello\n<assistant>".
    EXPECT_EQ(At(body, {"usage", "prompt_tokens"}), Json(23));
    EXPECT_EQ(At(body, {"usage", "completion_tokens"}), Json(5));
    EXPECT_EQ(At(body, {"usage", "total_tokens"}), Json(28));
    EXPECT_EQ(At(body, {"timings", "predicted_n"}), Json(5));
  }
}

TEST_F(ServerTest, AnswersAsAStream) {
  Start();
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 3);
  request.Set("stream", true);
  request.Set("model", "echoed");
  const WireResponse response = Chat(request);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.Header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(response.Header("Cache-Control"), "no-cache");
  const std::vector<std::string> events = Events(response.body);
  ASSERT_EQ(events.size(), 6u) << response.body;
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(At(Parsed(events[0]), {"choices", "0", "delta"}).Dump(),
            R"({"role":"assistant","content":""})");
  const Json id = At(Parsed(events[0]), {"id"});
  for (int i = 1; i <= 3; ++i) {
    const Json chunk = Parsed(events[i]);
    EXPECT_EQ(At(chunk, {"choices", "0", "delta"}).Dump(), R"({"content":"a"})");
    EXPECT_EQ(At(chunk, {"model"}), Json("echoed"));
    EXPECT_EQ(At(chunk, {"id"}), id);
    EXPECT_EQ(chunk.Find("usage"), nullptr);
  }
  const Json last = Parsed(events[4]);
  EXPECT_EQ(At(last, {"choices", "0", "finish_reason"}), Json("length"));
  EXPECT_EQ(At(last, {"choices", "0", "delta"}).Dump(), "{}");
  EXPECT_EQ(At(last, {"timings", "predicted_n"}), Json(3));
}

TEST_F(ServerTest, StreamsEndWithUsageWhenAsked) {
  Start();
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 2);
  request.Set("stream", true);
  request.Set("stream_options", Json::Object{{"include_usage", true}});
  const std::vector<std::string> events = Events(Chat(request).body);
  ASSERT_EQ(events.size(), 6u);
  for (int i = 0; i < 4; ++i) {
    const Json chunk = Parsed(events[i]);
    ASSERT_NE(chunk.Find("usage"), nullptr);
    EXPECT_TRUE(chunk.Find("usage")->is_null());
  }
  const Json usage = Parsed(events[4]);
  EXPECT_EQ(At(usage, {"choices"}).Dump(), "[]");
  EXPECT_EQ(At(usage, {"usage", "completion_tokens"}), Json(2));
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(ServerTest, TheStreamSaysWhatTheWholeAnswerSays) {
  Start();
  Json request = Json::Object{{"messages", Json::Array{Message("user", "noise")}},
                              {"max_tokens", 60},
                              {"seed", 7},
                              {"ignore_eos", true}};
  const Json whole = Parsed(Chat(request).body);
  request.Set("stream", true);
  std::string streamed;
  for (const std::string& event : Events(Chat(request).body)) {
    if (event == "[DONE]") continue;
    const Json text = At(Parsed(event), {"choices", "0", "delta", "content"});
    if (text.is_string()) streamed += text.as_string();
  }
  EXPECT_EQ(Json(streamed), At(whole, {"choices", "0", "message", "content"}));
  EXPECT_FALSE(streamed.empty());
}

TEST_F(ServerTest, TheNextTurnReadsNothingAgain) {
  Start();
  Json messages = Json::Array{Message("user", "Hello")};
  const Json first = Parsed(Chat(LetterRequest(messages, 8)).body);
  EXPECT_EQ(At(first, {"usage", "prompt_tokens_details", "cached_tokens"}), Json(0));
  messages.Append(At(first, {"choices", "0", "message"}));
  messages.Append(Message("user", "More"));
  const Json second = Parsed(Chat(LetterRequest(messages, 8)).body);
  // Everything up to the last generated token, whose row was never needed.
  const int64_t known = 23 + 8 - 1;
  EXPECT_EQ(At(second, {"usage", "prompt_tokens_details", "cached_tokens"}), Json(known));
  EXPECT_EQ(At(second, {"timings", "cache_n"}), Json(known));
  // "<user>Hello\n<assistant>aaaaaaaa\n<user>More\n<assistant>"
  EXPECT_EQ(At(second, {"usage", "prompt_tokens"}), Json(54));
  EXPECT_EQ(At(second, {"timings", "prompt_n"}), Json(54 - known));

  // Another conversation takes the sequence, and leaves no trace: the first answer comes again.
  const Json other = Parsed(Chat(LetterRequest(Json::Array{Message("system", "X")}, 4)).body);
  EXPECT_EQ(At(other, {"usage", "prompt_tokens_details", "cached_tokens"}), Json(1));
  const Json again = Parsed(Chat(LetterRequest(messages, 8)).body);
  EXPECT_EQ(At(again, {"choices"}), At(second, {"choices"}));
}

TEST_F(ServerTest, SeedsDecideTheAnswer) {
  Start();
  Json request = Json::Object{{"messages", Json::Array{Message("user", "Hello")}},
                              {"max_tokens", 40},
                              {"ignore_eos", true},
                              {"seed", 5}};
  const auto content = [&] { return At(Parsed(Chat(request).body), {"choices"}); };
  const Json first = content();
  EXPECT_EQ(content(), first);
  request.Set("seed", 6);
  EXPECT_NE(content().Dump(), first.Dump());
  // Without a seed each request has its own: equal answers of 40 tokens would be a miracle.
  request.Set("seed", nullptr);
  const Json random = content();
  EXPECT_NE(content().Dump(), random.Dump());
}

TEST_F(ServerTest, StopStringsEndTheAnswerUnseen) {
  Start();
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 50);
  request.Set("stop", "aaaa");
  const Json body = Parsed(Chat(request).body);
  EXPECT_EQ(At(body, {"choices", "0", "message", "content"}), Json(""));
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), Json("stop"));
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), Json(4));
  request.Set("stream", true);
  const std::vector<std::string> events = Events(Chat(request).body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(At(Parsed(events[1]), {"choices", "0", "finish_reason"}), Json("stop"));
}

TEST_F(ServerTest, EndTokensEndTheAnswer) {
  Start();
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 50);
  request.Set("logit_bias", Json::Object{{"2", 100}});
  for (const bool is_stream : {false, true}) {
    request.Set("stream", is_stream);
    const WireResponse response = Chat(request);
    EXPECT_NE(response.body.find(R"("finish_reason":"stop")"), std::string::npos) << response.body;
  }
}

TEST_F(ServerTest, TemplateVariablesReachTheTemplate) {
  Start();
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 1);
  request.Set("chat_template_kwargs", Json::Object{{"note", "12345678"}});
  EXPECT_EQ(At(Parsed(Chat(request).body), {"usage", "prompt_tokens"}), Json(33));
}

TEST_F(ServerTest, WrongRequestsAreErrorsThatNameTheField) {
  Start();
  const uint16_t port = server_->port();
  for (const char* body : {"", "{", "[1,", "nul", "\"\\ud800\"", "{\"messages\": [}"}) {
    const Json error = ErrorOf(Exchange(port, "POST", kChat, body), 400);
    EXPECT_EQ(At(error, {"type"}), Json("invalid_request_error"));
    EXPECT_TRUE(At(error, {"param"}).is_null());
  }
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 1);
  request.Set("temperature", "hot");
  EXPECT_EQ(At(ErrorOf(Chat(request), 400), {"param"}), Json("temperature"));
  request.Set("stream", true);
  EXPECT_EQ(At(ErrorOf(Chat(request), 400), {"param"}), Json("temperature"));

  const Json refused = ErrorOf(Chat(LetterRequest(Json::Array{Message("user", "refuse")}, 1)), 400);
  EXPECT_EQ(At(refused, {"param"}), Json("messages"));
  EXPECT_NE(At(refused, {"message"}).as_string().find("this I do not say"), std::string::npos);
  // Nothing of all this did any harm.
  EXPECT_EQ(Chat(LetterRequest(Json::Array{Message("user", "Hello")}, 1)).status, 200);
}

TEST_F(ServerTest, PromptsLongerThanTheContext) {
  Start();
  Json request = LetterRequest(Json::Array{Message("user", std::string(4096, 'x'))}, 1);
  for (const bool is_stream : {false, true}) {
    request.Set("stream", is_stream);
    const Json error = ErrorOf(Chat(request), 400);
    EXPECT_EQ(At(error, {"code"}), Json("context_length_exceeded"));
    EXPECT_EQ(At(error, {"param"}), Json("messages"));
  }
}

TEST_F(ServerTest, TheContextEndsTheAnswer) {
  Start();
  // 4094 tokens of prompt leave room for two.
  Json request = LetterRequest(Json::Array{Message("user", std::string(4094 - 18, 'x'))}, 1000);
  const Json body = Parsed(Chat(request).body);
  EXPECT_EQ(At(body, {"usage", "prompt_tokens"}), Json(4094));
  EXPECT_EQ(At(body, {"usage", "completion_tokens"}), Json(2));
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), Json("length"));
}

// Waiting would not help, so clients that try a 503 again must not hear one.
TEST_F(ServerTest, APromptThatNoCacheHoldsIs400) {
  // 4 layers, 2 heads of 16, K and V in f16: 512 bytes per token, so 512 tokens.
  Start({}, 256 << 10);
  Json request = LetterRequest(Json::Array{Message("user", std::string(3000, 'x'))}, 1);
  for (const bool is_stream : {false, true}) {
    request.Set("stream", is_stream);
    EXPECT_EQ(At(ErrorOf(Chat(request), 400), {"type"}), Json("invalid_request_error"));
  }
  EXPECT_EQ(Chat(LetterRequest(Json::Array{Message("user", "Hello")}, 1)).status, 200);
}

TEST_F(ServerTest, AnAnswerThatOutgrowsTheCacheEndsThere) {
  Start({}, 256 << 10);
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 4000);
  const Json whole = Parsed(Chat(request).body);
  EXPECT_EQ(At(whole, {"choices", "0", "finish_reason"}), Json("length"));
  const int64_t tokens = At(whole, {"usage", "total_tokens"}).as_int();
  EXPECT_GT(tokens, 400);
  EXPECT_LE(tokens, 513);  // the last one's own row was not written
  request.Set("stream", true);
  const WireResponse response = Chat(request);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.is_complete);
  const std::vector<std::string> events = Events(response.body);
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(At(Parsed(events[events.size() - 2]), {"choices", "0", "finish_reason"}),
            Json("length"));
}

// Nothing begins where one of several prompts is refused.
TEST_F(ServerTest, SeveralPromptsAreRefusedTogether) {
  Start({}, 256 << 10);
  for (const bool is_stream : {false, true}) {
    const Json request = Json::Object{{"prompt", Json::Array{"Hi", std::string(3000, 'x')}},
                                      {"max_tokens", 2},
                                      {"stream", is_stream}};
    ErrorOf(Exchange(server_->port(), "POST", "/v1/completions", request.Dump()), 400);
  }
}

TEST_F(ServerTest, LongPromptsShowLife) {
  ServerOptions options;
  options.ping_interval = milliseconds(0);
  options.chunk_tokens = 100;
  Start(options);
  Json request = LetterRequest(Json::Array{Message("user", std::string(300, 'x'))}, 1);
  request.Set("stream", true);
  const WireResponse response = Chat(request);
  // 100 tokens per step, cut at the end of a block.
  EXPECT_NE(response.body.find(": prompt 64/318\n\n"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find(": prompt 318/318\n\n"), std::string::npos);
  EXPECT_EQ(Events(response.body).back(), "[DONE]");
}

TEST_F(ServerTest, BodiesBeyondTheLimitAre413) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  Start(options);
  ErrorOf(Exchange(server_->port(), "POST", kChat, std::string(1001, ' ')), 413);
  EXPECT_EQ(Chat(LetterRequest(Json::Array{Message("user", "Hello")}, 1)).status, 200);
}

// A stream that cannot end by itself: far more events than all buffers on the way hold, and a
// client that does not read them.
class StuckStream {
 public:
  static ServerOptions Options() {
    ServerOptions options;
    options.max_unsent_bytes = 4096;
    options.send_buffer_bytes = 4096;
    options.max_streams = 1;
    // A test that is stopped for a while must not find that the server has given up on the client.
    options.write_timeout = std::chrono::hours(24);
    return options;
  }
  explicit StuckStream(uint16_t port) : client_(port, 4096) {
    Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 4000);
    request.Set("stream", true);
    EXPECT_TRUE(client_.SendRequest("POST", kChat, request.Dump()));
    // The answer has begun, so the engine is busy with it.
    EXPECT_TRUE(client_.ReadUntil(R"("content":"a")"));
  }
  TestClient& client() { return client_; }

 private:
  TestClient client_;
};

TEST_F(ServerTest, AClientThatGoesAwayInTheMiddleIsCancelled) {
  Start(StuckStream::Options());
  for (const bool is_reset : {false, true}) {
    StuckStream stuck(server_->port());
    is_reset ? stuck.client().Reset() : stuck.client().Close();
    const Json next = Parsed(Chat(LetterRequest(Json::Array{Message("user", "Hello")}, 2)).body);
    EXPECT_EQ(At(next, {"choices", "0", "message", "content"}), Json("aa"));
  }
  EXPECT_NE(log_.WaitFor("the client is gone"), "");
}

// Holds the engine's thread at the end of the first answer: whoever comes behind it waits, for as
// long as the test likes. (A client that does not read would be no hold: it gives up its place.)
class HeldEngine {
 public:
  // What it returns refers to this object.
  ServerOptions Options() {
    ServerOptions options;
    options.max_streams = 1;
    options.log_detail = RequestLogDetail::kParameters;
    options.request_log = [this](const RequestRecord& record) {
      refused_ += record.status == 503;
      gone_ += record.status == 0;
      if (record.status != 200 || has_held_.exchange(true)) return;
      held_.set_value();
      go_on_.get_future().wait();
    };
    return options;
  }
  bool WaitUntilHeld() {
    return held_.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  }
  void Release() { go_on_.set_value(); }
  int refused() const { return refused_; }
  int gone() const { return gone_; }

 private:
  std::atomic<int> refused_ = 0;
  std::atomic<int> gone_ = 0;
  std::atomic<bool> has_held_ = false;
  std::promise<void> held_;
  std::promise<void> go_on_;
};

TEST_F(ServerTest, AWaitingClientThatGoesAwayMakesRoom) {
  HeldEngine held;
  ServerOptions options = held.Options();
  options.max_waiting_requests = 0;  // so one: a stream is free
  Start(options);
  const auto send = [&](TestClient& client, int max_tokens) {
    const Json request = LetterRequest(Json::Array{Message("user", "Hello")}, max_tokens);
    EXPECT_TRUE(client.SendRequest("POST", kChat, request.Dump()));
    EXPECT_NE(log_.WaitFor("\"max_tokens\":" + std::to_string(max_tokens) + ","), "");
    // Requests are taken one after the other: that one has a place now, or none.
    EXPECT_EQ(Exchange(server_->port(), "POST", kChat, "{").status, 400);
  };
  TestClient first(server_->port());
  send(first, 1);
  EXPECT_TRUE(held.WaitUntilHeld());
  auto waiting = std::make_unique<TestClient>(server_->port());
  send(*waiting, 2);
  EXPECT_EQ(held.refused(), 0);
  TestClient refused(server_->port());
  send(refused, 3);
  EXPECT_EQ(refused.Read().status, 503);

  waiting->Reset();
  // On a connection of its own, so the server may see the next request first, and a few more.
  std::unique_ptr<TestClient> next;
  int before = 0;
  for (int i = 4; i < 10'000 && (next == nullptr || held.refused() > before); ++i) {
    before = held.refused();
    next = std::make_unique<TestClient>(server_->port());
    send(*next, i);
  }
  held.Release();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(next->Read().status, 200);
  server_->Stop();
  EXPECT_EQ(held.gone(), 1);
}

TEST_F(ServerTest, AHalfClosedClientIsServed) {
  Start();
  for (const bool is_stream : {false, true}) {
    TestClient client(server_->port());
    Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 200);
    request.Set("stream", is_stream);
    ASSERT_TRUE(client.SendRequest("POST", kChat, request.Dump()));
    client.HalfClose();
    const WireResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_NE(response.body.find(R"("finish_reason":"length")"), std::string::npos);
  }
}

TEST_F(ServerTest, TwoClientsAtOnceGetTheirOwnAnswers) {
  Start();
  const auto ask = [&](const char* token) {
    Json request = LetterRequest(Json::Array{Message("user", token)}, 20);
    request.Set("logit_bias", Json::Object{{token, 100}});
    return At(Parsed(Chat(request).body), {"choices", "0", "message", "content"});
  };
  std::vector<std::future<Json>> answers;
  for (int i = 0; i < 4; ++i) {
    answers.push_back(std::async(std::launch::async, ask, i % 2 == 0 ? "98" : "99"));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i].get(), Json(std::string(20, i % 2 == 0 ? 'b' : 'c')));
  }
}

// Bodies of more than 64 KiB have a thread of their own.
TEST_F(ServerTest, LongAndShortBodiesAtOnce) {
  Start();
  const auto count = [&](size_t letters) {
    const Json request = Json::Object{{"content", std::string(letters, 'x')}};
    const WireResponse response = Exchange(server_->port(), "POST", "/tokenize", request.Dump());
    return Parsed(response.body).Find("tokens")->as_array().size();
  };
  std::vector<std::future<size_t>> counts;
  for (size_t i = 0; i < 8; ++i) {
    counts.push_back(std::async(std::launch::async, count, i % 2 == 0 ? 100'000 + i : i));
  }
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(counts[i].get(), i % 2 == 0 ? 100'000 + i : i);
}

TEST_F(ServerTest, AFullInboxIs503) {
  ServerOptions options = StuckStream::Options();
  options.max_waiting_requests = 0;
  Start(options);
  {
    StuckStream stuck(server_->port());
    const WireResponse busy = Chat(LetterRequest(Json::Array{Message("user", "Hello")}, 1));
    EXPECT_EQ(At(ErrorOf(busy, 503), {"type"}), Json("unavailable_error"));
    EXPECT_EQ(busy.Header("Retry-After"), "1");
    // Everything else is still answered.
    EXPECT_EQ(Exchange(server_->port(), "GET", "/health").status, 200);
    EXPECT_EQ(ErrorOf(Exchange(server_->port(), "POST", kChat, "{"), 400).is_object(), true);
  }
}

TEST_F(ServerTest, StopLetsTheRunningAnswerEnd) {
  ServerOptions options;
  options.stop_grace = std::chrono::minutes(1);
  Start(options);
  TestClient client(server_->port());
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 500);
  request.Set("stream", true);
  ASSERT_TRUE(client.SendRequest("POST", kChat, request.Dump()));
  ASSERT_TRUE(client.ReadUntil(R"("content":"a")"));
  auto stopped = std::async(std::launch::async, [&] { server_->Stop(); });
  EXPECT_EQ(Events(client.Read().body).back(), "[DONE]");
  stopped.get();
  server_->Wait();
  TestClient late(server_->port());
  late.SendRequest("GET", "/health");
  EXPECT_EQ(late.Read().status, 0);
}

// What an answer has cost before it failed counts as well.
TEST_F(ServerTest, StopWithoutGraceCancelsWithAnErrorEvent) {
  std::vector<RequestRecord> records;  // read when the server has stopped
  ServerOptions options;
  options.stop_grace = milliseconds(0);
  options.request_log = [&](const RequestRecord& record) { records.push_back(record); };
  Start(options);
  TestClient client(server_->port());
  Json request = LetterRequest(Json::Array{Message("user", "Hello")}, 4000);
  request.Set("stream", true);
  ASSERT_TRUE(client.SendRequest("POST", kChat, request.Dump()));
  ASSERT_TRUE(client.ReadUntil(R"("content":"a")"));
  auto stopped = std::async(std::launch::async, [&] { server_->Stop(); });
  const std::vector<std::string> events = Events(client.Read().body);
  ASSERT_FALSE(events.empty());
  stopped.get();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_GT(records[0].prompt_tokens, 5);
  EXPECT_GT(records[0].generated_tokens, 0);
  // The answer may have ended by itself in the moment before.
  if (events.back() != "[DONE]") {
    EXPECT_EQ(At(Parsed(events.back()), {"error", "type"}), Json("unavailable_error"));
    EXPECT_EQ(records[0].status, 503);
  }
}

TEST_F(ServerTest, StopDoesNotWaitForAClientThatDoesNotRead) {
  ServerOptions options = StuckStream::Options();
  options.stop_grace = milliseconds(0);
  Start(options);
  StuckStream stuck(server_->port());
  server_->Stop();
  server_->Stop();
}

TEST(ServerStart, NeedsATokenizer) {
  BundleOptions options;
  options.backend.threads = 1;
  options.kv_budget_bytes = 1 << 20;
  auto bundle = ModelBundle::Load(
      std::string(KVASIR_SOURCE_DIR) + "/testdata/models/public_llama_f32", options);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  ServerOptions any_port;
  any_port.port = 0;
  auto server = Server::Start(bundle->get(), any_port);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, ErrorCode::kFailedPrecondition);
}

// Else it would be noticed when the cache is to be saved.
TEST(ServerStart, FoldersMustBeThere) {
  const auto bundle = LoadTestModel(64 << 20, "");
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  ServerOptions cache;
  cache.prompt_cache_file = "/nowhere/cache.kv";
  ServerOptions folder;
  folder.port = 0;
  folder.prompt_cache_file = testing::TempDir();
  EXPECT_EQ(Server::Start(bundle->get(), folder).status().error().code, ErrorCode::kIo);
  ServerOptions slots;
  slots.slot_save_path = "/nowhere/slots";
  ServerOptions stored;
  stored.cache_dir = "/nowhere/stored";
  for (ServerOptions* const options : {&cache, &slots, &stored}) {
    options->port = 0;
    const auto server = Server::Start(bundle->get(), *options);
    ASSERT_FALSE(server.ok());
    EXPECT_NE(server.error().message.find("/nowhere"), std::string::npos);
  }
}

TEST(ServerStart, AModelWithoutATemplateDoesAllButChat) {
  const auto bundle = LoadBaseTestModel();
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  LogWatch log;
  ServerOptions options;
  options.port = 0;
  options.log = log.Sink();
  const auto server = Server::Start(bundle->get(), options);
  ASSERT_TRUE(server.ok()) << server.error().message;
  EXPECT_FALSE(log.WaitFor("has no chat template").empty());
  const uint16_t port = (*server)->port();
  const auto post = [&](const std::string& path, const std::string& body) {
    return Exchange(port, "POST", path, body);
  };
  const Json text = Parsed(post("/v1/completions", R"({"prompt": "ab", "max_tokens": 3})").body);
  EXPECT_TRUE(text.Find("choices") != nullptr) << text.Dump();
  EXPECT_EQ(post("/tokenize", R"({"content": "ab"})").status, 200);
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "ab"})").status, 200);
  EXPECT_EQ(Exchange(port, "GET", "/props").status, 200);
  const std::string chat = R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 3})";
  for (const char* path :
       {"/v1/chat/completions", "/apply-template", "/v1/messages", "/v1/messages/count_tokens"}) {
    const WireResponse response = post(path, chat);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find("has no chat template"), std::string::npos) << response.body;
  }
  EXPECT_EQ(post("/v1/responses", R"({"input": "ab"})").status, 400);
}

TEST_F(ServerTest, AnswersGoOnWithAnAssistantsLastMessage) {
  Start();
  const uint16_t port = server_->port();
  const auto post = [&](const std::string& path, const Json& body) {
    const WireResponse response = Exchange(port, "POST", path, body.Dump());
    return Parsed(response.body);
  };
  Json request = LetterRequest(Json::Array{Message("user", "Hi"), Message("assistant", "aa ")}, 3);
  EXPECT_EQ(post("/apply-template", request),
            Json(Json::Object{{"prompt", "<user>Hi\n<assistant>aa "}}));
  const Json answer = post(kChat, request);
  EXPECT_EQ(At(answer, {"choices", "0", "message", "content"}), Json("aaa")) << answer.Dump();
  const int64_t begun = At(answer, {"usage", "prompt_tokens"}).as_int();
  const Json message = post("/v1/messages", request);
  EXPECT_EQ(At(message, {"content", "0", "text"}), Json("aaa")) << message.Dump();
  EXPECT_EQ(post("/v1/messages/count_tokens", request),
            Json(Json::Object{{"input_tokens", begun}}));

  request.Set("continue_final_message", false);
  EXPECT_EQ(post("/apply-template", request),
            Json(Json::Object{{"prompt", "<user>Hi\n<assistant>aa \n<assistant>"}}));
  request.Set("continue_final_message", true);
  request.Set("messages", Json::Array{Message("assistant", "aa"), Message("assistant", "aa")});
  EXPECT_EQ(At(post(kChat, request), {"error", "param"}), Json("messages"));
  // Items of responses are finished.
  const Json input = Json::Array{Message("user", "Hi"), Message("assistant", "aa ")};
  const Json response =
      post("/v1/responses", Json::Object{{"input", input}, {"max_output_tokens", 1}});
  EXPECT_GT(At(response, {"usage", "input_tokens"}).as_int(), begun) << response.Dump();
}

// The cache's picture when it shows `sequences` of them: one is made anew only after a while.
Json CacheWith(uint16_t port, size_t sequences) {
  for (;;) {
    Json cache = Parsed(Exchange(port, "GET", "/cache").body);
    if (cache.Find("sequences")->as_array().size() == sequences) return cache;
  }
}

TEST_F(ServerTest, CacheShowsWhatBranchesShareAndNothingOfWhatWasSaid) {
  Start();
  const uint16_t port = server_->port();
  EXPECT_EQ(At(CacheWith(port, 0), {"bytes", "cached"}), Json(0));
  const std::string common(256, 'c');
  Json::Array messages = {Message("user", common + "secret words")};
  ASSERT_EQ(Chat(LetterRequest(messages, 20)).status, 200);
  messages[0] = Message("user", common + "hidden words");
  ASSERT_EQ(Chat(LetterRequest(messages, 20)).status, 200);

  const Json cache = CacheWith(port, 2);
  const std::string text = cache.Dump();
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_EQ(At(cache, {"block_tokens"}), Json(64));
  EXPECT_EQ(At(cache, {"left_out"}), Json(0));
  EXPECT_EQ(At(cache, {"bytes", "live"}), Json(0));
  EXPECT_GT(At(cache, {"bytes", "cached"}).as_int(), 0);
  EXPECT_EQ(At(cache, {"bytes", "cached"}).as_int() + At(cache, {"bytes", "free"}).as_int(),
            At(cache, {"bytes", "budget"}).as_int());
  EXPECT_GE(At(cache, {"counters", "cached_tokens"}).as_int(), 256);
  EXPECT_EQ(At(cache, {"counters", "generated_tokens"}), Json(40));
  for (const char* sequence : {"0", "1"}) {
    EXPECT_EQ(At(cache, {"sequences", sequence, "state"}), Json("cached"));
    const Json first = At(cache, {"sequences", sequence, "runs", "0", "0"});
    EXPECT_EQ(At(first, {"first_block"}), Json(0));
    EXPECT_EQ(At(first, {"blocks"}), Json(4)) << "four whole blocks are common";
    EXPECT_EQ(At(first, {"shared_by"}), Json(2));
    EXPECT_EQ(At(first, {"tier"}), Json("cached"));
  }
  EXPECT_EQ(At(cache, {"sequences", "0", "runs", "0", "0", "id"}),
            At(cache, {"sequences", "1", "runs", "0", "0", "id"}));
}

TEST_F(ServerTest, CacheWantsTheKey) {
  Start({.api_keys = {"sesame"}});
  ErrorOf(Exchange(server_->port(), "GET", "/cache"), 401);
}

TEST_F(ServerTest, WebPageNeedsNoKeyAndAllowsNothingFromElsewhere) {
  Start({.api_keys = {"sesame"}});
  const uint16_t port = server_->port();
  const WireResponse page = Exchange(port, "GET", "/");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.Header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_TRUE(page.Header("Content-Security-Policy").starts_with("default-src 'none'; "));
  // Everything that it names is there, and of this server.
  size_t files = 0;
  for (size_t at = page.body.find("/web/"); at != std::string::npos;
       at = page.body.find("/web/", at + 1)) {
    const std::string path = page.body.substr(at, page.body.find('"', at) - at);
    EXPECT_EQ(page.body[at - 1], '"') << path;
    const WireResponse file = Exchange(port, "GET", path);
    EXPECT_EQ(file.status, 200) << path;
    EXPECT_EQ(file.Header("X-Content-Type-Options"), "nosniff");
    EXPECT_FALSE(file.body.empty());
    ++files;
  }
  EXPECT_GE(files, 4u);
  ErrorOf(Exchange(port, "GET", "/web/../server.h"), 404);
  ErrorOf(Exchange(port, "GET", "/index"), 404);
}

TEST_F(ServerTest, WebPageCanBeLeftOut) {
  Start({.has_web_page = false});
  ErrorOf(Exchange(server_->port(), "GET", "/"), 404);
  ErrorOf(Exchange(server_->port(), "GET", "/web/app.js"), 404);
}

}  // namespace
}  // namespace kvasir
