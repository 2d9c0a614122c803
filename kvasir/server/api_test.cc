// Every endpoint over real sockets: requests as clients send them and the exact answers, but for
// what differs each time (fixtures/api.json). With KVASIR_RECORD_FIXTURES set the answers are
// written into that file instead; read them before you commit them.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/server/server.h"
#include "kvasir/server/test_client.h"
#include "kvasir/server/test_json.h"
#include "kvasir/server/test_model.h"

namespace kvasir {
namespace {

const std::string kFixtures = std::string(KVASIR_SOURCE_DIR) + "/kvasir/server/fixtures/api.json";

// Ids, times and speeds are masked.
Json Masked(const std::string& name, const Json& value) {
  if (value.is_object()) {
    Json masked = Json::Object();
    for (const auto& [key, member] : value.as_object()) masked.Set(key, Masked(key, member));
    return masked;
  }
  if (value.is_array()) {
    Json::Array masked;
    for (const Json& element : value.as_array()) masked.push_back(Masked(name, element));
    return masked;
  }
  const bool is_time = name.starts_with("created") || name == "completed_at";
  if (value.is_string()) {
    constexpr size_t kTimeSize = 20;  // 2026-11-29T21:22:24Z
    if (is_time && value.as_string().size() == kTimeSize) return "time";
    for (const char* prefix :
         {"chatcmpl-", "cmpl-", "msg_", "resp_", "call_", "toolu_", "fc_", "rs_"}) {
      if (value.as_string().starts_with(prefix)) return std::string(prefix) + "*";
    }
  }
  const bool is_speed = name.ends_with("_ms") || name.ends_with("_per_second");
  return value.is_number() && (is_time || is_speed) ? Json(0) : value;
}

Json BlockJson(const std::string& block) {
  const size_t data = block.find("data: ");
  if (data == std::string::npos) return block;
  const std::string text = block.substr(data + 6);
  const Json content = text.starts_with("{") ? Masked("", Parsed(text)) : Json(text);
  if (data == 0) return content;
  return Json::Object{{"event", block.substr(0, data)}, {"data", content}};
}

Json ResponseJson(const WireResponse& response) {
  const std::string type = response.Header("Content-Type");
  if (type == "application/json") return Masked("", Parsed(response.body));
  if (!type.starts_with("text/event-stream")) return response.body;
  Json::Array blocks;
  for (const std::string& block : Blocks(response.body)) blocks.push_back(BlockJson(block));
  return blocks;
}

std::string RequestOf(const Json& fixture) {
  std::string body;
  if (const Json* json = fixture.Find("body")) body = json->Dump();
  if (const Json* raw = fixture.Find("raw")) body = raw->as_string();
  std::string request = fixture.Find("method")->as_string() + " " +
                        fixture.Find("path")->as_string() + " HTTP/1.1\r\nHost: localhost\r\n";
  if (const Json* headers = fixture.Find("headers")) {
    for (const auto& [name, value] : headers->as_object()) {
      request += name + ": " + value.as_string() + "\r\n";
    }
  }
  return request + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class ApiTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}, const std::string& more_template = "") {
    auto bundle = LoadTestModel(64 << 20, more_template);
    ASSERT_TRUE(bundle.ok()) << bundle.error().message;
    server_.reset();
    bundle_ = *std::move(bundle);
    options.port = 0;
    options.model_name = "tiny";
    auto server = Server::Start(bundle_.get(), options);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }
  WireResponse Ask(const std::string& bytes) {
    TestClient client(server_->port());
    EXPECT_TRUE(client.Send(bytes));
    return client.Read();
  }
  WireResponse Ask(const std::string& method, const std::string& path, const std::string& headers,
                   const std::string& body = "") {
    return Ask(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
               "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<Server> server_;
};

TEST_F(ApiTest, Fixtures) {
  const bool is_recording = std::getenv("KVASIR_RECORD_FIXTURES") != nullptr;
  auto fixtures = Json::ParseFile(kFixtures);
  ASSERT_TRUE(fixtures.ok()) << fixtures.error().message;
  for (Json& fixture : fixtures->as_array()) {
    SCOPED_TRACE(fixture.Find("name")->as_string());
    // What one request leaves in the cache would show in the answer to the next; several answers at
    // once would send their events in an order that nobody promises.
    ServerOptions options;
    options.max_streams = 1;
    Start(options);
    const WireResponse response = Ask(RequestOf(fixture));
    EXPECT_TRUE(response.is_complete);
    const Json answer = ResponseJson(response);
    if (is_recording) {
      fixture.Set("status", response.status);
      fixture.Set("response", answer);
      continue;
    }
    ASSERT_NE(fixture.Find("status"), nullptr);
    EXPECT_EQ(Json(response.status), *fixture.Find("status"));
    EXPECT_EQ(answer.Dump(), fixture.Find("response")->Dump());
  }
  if (is_recording) {
    std::string text = "[";
    for (const Json& fixture : fixtures->as_array()) {
      text += (text.size() > 1 ? ",\n" : "\n") + fixture.Dump();
    }
    ASSERT_TRUE(WriteFileAtomic(kFixtures, text + "\n]\n").ok());
    GTEST_SKIP() << "recorded";
  }
}

// A template that speaks of thoughts, and an answer with one, which a grammar makes sure of.
TEST_F(ApiTest, ThoughtsAreNotContent) {
  const std::string rule = R"("grammar":"root ::= \"<think>so</think> yes\"")";
  const std::string chat = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":30,)" + rule;
  Start({}, "{# <think></think> #}");
  const auto ask = [&](const std::string& path, const std::string& body) {
    return Parsed(Ask("POST", path, "", body).body);
  };
  const Json whole = ask("/v1/chat/completions", chat + "}");
  EXPECT_EQ(At(whole, {"choices", "0", "message", "content"}), Json("yes"));
  EXPECT_EQ(At(whole, {"choices", "0", "message", "reasoning_content"}), Json("so"));
  EXPECT_GT(At(whole, {"usage", "completion_tokens_details", "reasoning_tokens"}).as_int(), 2);
  const Json raw = ask("/v1/chat/completions", chat + R"(,"reasoning_format":"none"})");
  EXPECT_EQ(At(raw, {"choices", "0", "message", "content"}), Json("<think>so</think> yes"));
  const Json message = ask("/v1/messages", chat + "}");
  EXPECT_EQ(At(message, {"content", "0", "thinking"}), Json("so"));
  EXPECT_EQ(At(message, {"content", "1", "text"}), Json("yes"));

  std::string thought;
  std::string text;
  for (const std::string& block :
       Blocks(Ask("POST", "/v1/chat/completions", "", chat + R"(,"stream":true})").body)) {
    if (!block.starts_with("data: {")) continue;
    const Json delta = At(Parsed(block.substr(6)), {"choices", "0", "delta"});
    if (const Json* piece = delta.Find("reasoning_content")) thought += piece->as_string();
    if (const Json* piece = delta.Find("content")) text += piece->as_string();
  }
  EXPECT_EQ(thought, "so");
  EXPECT_EQ(text, "yes");
  std::vector<std::string> events;
  for (const std::string& block :
       Blocks(Ask("POST", "/v1/messages", "", chat + R"(,"stream":true})").body)) {
    const std::string event = block.substr(7, block.find('\n') - 7);
    if (events.empty() || events.back() != event) events.push_back(event);
  }
  EXPECT_EQ(events, (std::vector<std::string>{
                        "message_start", "content_block_start", "content_block_delta",
                        "content_block_stop", "content_block_start", "content_block_delta",
                        "content_block_stop", "message_delta", "message_stop"}));
}

// gpt-oss: an answer of many messages, which a grammar makes sure of behind the text that the
// prompt has begun, in every format.
TEST_F(ApiTest, RowsOfMessagesAreToldApart) {
  Start({}, "<|channel|>final<|message|>{# <|start|>assistant<|channel|> #}");
  const std::string turn = "<|start|>assistant<|channel|>";
  const std::string answer = "one<|end|>" + turn + "analysis<|message|>so<|end|>" + turn +
                             "commentary to=functions.f <|constrain|>json<|message|>{}<|call|>" +
                             turn + "analysis<|message|>hm<|end|>" + turn +
                             "final<|message|>two<|end|>" + turn + "analysis<|message|>x<|end|>" +
                             turn + "final<|message|>three";
  const std::string fields = R"(,"tools":[{"type":"function","name":"f","parameters":{},"function":
      {"name":"f"}}],"grammar":)" +
                             Json("root ::= " + Json(answer).Dump()).Dump();
  const std::string messages = R"("messages":[{"role":"user","content":"a"}],"max_tokens":600)";
  const auto ask = [&](const std::string& path, const std::string& body) {
    return Parsed(Ask("POST", path, "", "{" + body + fields + "}").body);
  };
  const Json chat = ask("/v1/chat/completions", messages + R"(,"tool_choice":"auto")");
  EXPECT_EQ(At(chat, {"choices", "0", "message", "content"}), Json("one\n\ntwo\n\nthree"));
  EXPECT_EQ(At(chat, {"choices", "0", "message", "reasoning_content"}), Json("so\n\nhm\n\nx"));
  EXPECT_EQ(At(chat, {"choices", "0", "message", "tool_calls", "0", "function", "arguments"}),
            Json("{}"));
  EXPECT_EQ(At(chat, {"choices", "0", "finish_reason"}), Json("tool_calls"));
  const Json response =
      ask("/v1/responses", R"("input":"a","max_output_tokens":600,"top_logprobs":1)");
  std::string kinds;
  std::set<std::string> ids;
  size_t scores = 0;
  const Json output = At(response, {"output"});
  ASSERT_TRUE(output.is_array()) << response.Dump();
  for (const Json& item : output.as_array()) {
    kinds += item.Find("type")->as_string() + " ";
    ids.insert(item.Find("id")->as_string());
    if (*item.Find("type") != Json("message")) continue;
    const Json logprobs = At(item, {"content", "0", "logprobs"});
    scores += logprobs.is_array() ? logprobs.as_array().size() : 0;
  }
  EXPECT_EQ(kinds, "message reasoning function_call reasoning message reasoning message ");
  EXPECT_EQ(ids.size(), 7u);
  EXPECT_EQ(scores, std::string("onetwothree").size());
  const Json message =
      Parsed(Ask("POST", "/v1/messages", "",
                 "{" + messages +
                     R"(,"tools":[{"name":"f","input_schema":{"type":"object"}}],"grammar":)" +
                     Json("root ::= " + Json(answer).Dump()).Dump() + "}")
                 .body);
  EXPECT_EQ(At(message, {"stop_reason"}), Json("tool_use")) << message.Dump();
}

// Mistral's templates take ids of nine letters and digits: those of other models are numbered.
TEST_F(ApiTest, ForeignCallIdsAreNumberedForMistral) {
  Start({},
        "{% for m in messages %}{% for c in m.tool_calls or [] %}<{{ c.id }}>{% endfor %}"
        "{% if m.role == 'tool' %}({{ m.tool_call_id }}){% endif %}{% endfor %}"
        "{% if tools %}[AVAILABLE_TOOLS]{% endif %}{# [TOOL_CALLS] #}");
  const auto call = [](const std::string& id) {
    return R"({"role":"assistant","tool_calls":[{"id":")" + id +
           R"(","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
           R"({"role":"tool","tool_call_id":")" +
           id + R"(","content":"r"})";
  };
  const Json answer =
      Parsed(Ask("POST", "/apply-template", "",
                 R"({"messages":[{"role":"user","content":"a"},)" + call("toolu_01AbC") + "," +
                     call("abcDEF123") + "," + call("call_x") + "," + call("toolu_01AbC") +
                     R"(],"tools":[{"type":"function","function":{"name":"f"}}]})")
                 .body);
  const std::string prompt = At(answer, {"prompt"}).as_string();
  EXPECT_TRUE(prompt.ends_with(
      "<call00000>(call00000)<abcDEF123>(abcDEF123)<call00001>(call00001)<call00000>(call00000)"
      "[AVAILABLE_TOOLS]"))
      << prompt;
}

// Without thoughts and calls, and streamed the same.
TEST_F(ApiTest, ResponsesScoreTheTokensOfTheText) {
  Start({}, "{# <think></think> #}");
  // Of a grammar or a call the former, which begins with an s.
  const std::string tools = R"(,"tools":[{"type":"function","name":"f"}],"logit_bias":{"115":100})";
  const std::string call = R"(<tool_call>{\"name\": \"f\"}</tool_call>)";
  for (const auto& [grammar, more, text, scored] :
       {std::tuple{std::string("<think>so</think> yes"), std::string(), "yes", " yes"},
        {"yes", "", "yes", "yes"},
        {"<think></think>no", "", "no", "no"},
        {"so \n" + call, tools, "so", "so \n<tool_call>"}}) {
    SCOPED_TRACE(grammar);
    std::string rule;
    for (const char c : grammar) {
      if (c == '\n') {
        rule += "\\\\n";
      } else if (c == '"' || c == '\\') {
        rule += c == '"' ? "\\\"" : "\\\\";
      } else {
        rule += c;
      }
    }
    const std::string body =
        R"({"input":"a","temperature":0,"top_logprobs":1,)"
        R"("include":["message.output_text.logprobs"],"grammar":"root ::= \")" +
        rule + R"(\"")" + more;
    const Json whole = Parsed(Ask("POST", "/v1/responses", "", body + "}").body);
    ASSERT_NE(whole.Find("output"), nullptr) << whole.Dump();
    Json wanted;
    for (const Json& item : whole.Find("output")->as_array()) {
      if (*item.Find("type") == Json("message")) wanted = At(item, {"content", "0"});
    }
    EXPECT_EQ(At(wanted, {"text"}), Json(text));
    std::string tokens;
    const Json logprobs = At(wanted, {"logprobs"});
    for (const Json& score : logprobs.as_array()) {
      tokens += score.Find("token")->as_string();
      EXPECT_EQ(score.Find("top_logprobs")->as_array().size(), 1u);
    }
    EXPECT_EQ(tokens, scored);
    Json streamed;
    for (const std::string& block :
         Blocks(Ask("POST", "/v1/responses", "", body + R"(,"stream":true})").body)) {
      const size_t data = block.find("data: ");
      if (data == block.npos) continue;
      const Json event = Parsed(block.substr(data + 6));
      if (*event.Find("type") != Json("response.output_text.done")) continue;
      streamed = At(event, {"logprobs"});
    }
    EXPECT_EQ(streamed.Dump(), logprobs.Dump());
  }
}

// The prompt opens the thought: a schema is held to behind it only, and it never ends here.
TEST_F(ApiTest, WhatIsHeldToASchemaBeginsBehindTheThought) {
  Start({}, "<think>\n{# </think> #}");
  const Json answer =
      Parsed(Ask("POST", "/v1/chat/completions", "",
                 R"({"messages":[{"role":"user","content":"a"}],"max_tokens":5,"temperature":0,)"
                 R"("logit_bias":{"97":100},"response_format":{"type":"json_object"}})")
                 .body);
  EXPECT_EQ(At(answer, {"choices", "0", "message", "content"}), Json(""));
  EXPECT_EQ(At(answer, {"choices", "0", "message", "reasoning_content"}), Json("aaaaa"));
  EXPECT_EQ(At(answer, {"choices", "0", "finish_reason"}), Json("length"));
  EXPECT_EQ(At(answer, {"usage", "completion_tokens_details", "reasoning_tokens"}), Json(5));
}

// A text scores the same whether it was generated or given.
TEST_F(ApiTest, GeneratedAndGivenTokensHaveTheSameScores) {
  Start();
  const auto scores = [&](const std::string& body) {
    return At(Parsed(Ask("POST", "/v1/completions", "", body).body),
              {"choices", "0", "logprobs", "token_logprobs"});
  };
  const Json generated =
      scores(R"({"prompt":"Hi","max_tokens":4,"logprobs":0,"logit_bias":{"97":100}})");
  const Json given = scores(R"({"prompt":"Hiaaaa","max_tokens":0,"logprobs":0,"echo":true})");
  ASSERT_TRUE(generated.is_array() && given.is_array());
  ASSERT_EQ(generated.as_array().size(), 4u);
  ASSERT_EQ(given.as_array().size(), 6u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(generated.as_array()[i], given.as_array()[i + 2]);
}

// Where nothing is to follow it.
TEST_F(ApiTest, APromptMayFillTheContext) {
  Start();
  const auto tokens = static_cast<size_t>(bundle_->model().context_tokens());
  const auto status = [&](size_t size, const std::string& path, Json body) {
    body.Set(path == "/v1/embeddings" ? "input" : "prompt", Json(Json::Array(size, Json(72))));
    return Ask("POST", path, "", body.Dump()).status;
  };
  const Json scored = Json::Object{{"max_tokens", 0}, {"echo", true}};
  const Json answered = Json::Object{{"max_tokens", 1}};
  EXPECT_EQ(status(tokens, "/v1/embeddings", Json::Object()), 200);
  EXPECT_EQ(status(tokens + 1, "/v1/embeddings", Json::Object()), 400);
  EXPECT_EQ(status(tokens, "/v1/completions", scored), 200);
  EXPECT_EQ(status(tokens + 1, "/v1/completions", scored), 400);
  EXPECT_EQ(status(tokens - 1, "/v1/completions", answered), 200);
  EXPECT_EQ(status(tokens, "/v1/completions", answered), 400);
}

constexpr const char* kText = R"({"prompt":"Hi","max_tokens":2,"logit_bias":{"97":100}})";

TEST_F(ApiTest, KeysOpenEverythingButHealth) {
  ServerOptions options;
  options.api_keys = {"first", "second"};
  Start(options);
  EXPECT_EQ(Ask("GET", "/health", "").status, 200);
  for (const char* headers :
       {"", "Authorization: Bearer third\r\n", "Authorization: Bearer \r\n",
        "Authorization: first\r\n", "Authorization: Bearer firstx\r\n", "x-api-key: firs\r\n"}) {
    SCOPED_TRACE(headers);
    const WireResponse refused = Ask("POST", "/v1/completions", headers, kText);
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.Header("WWW-Authenticate"), "Bearer");
    EXPECT_EQ(At(Parsed(refused.body), {"error", "code"}), Json("invalid_api_key"));
    EXPECT_EQ(Ask("GET", "/metrics", headers).status, 401);
  }
  const WireResponse message = Ask("POST", "/v1/messages", "", "{}");
  EXPECT_EQ(message.status, 401);
  EXPECT_EQ(At(Parsed(message.body), {"error", "type"}), Json("authentication_error"));
  for (const char* headers : {"Authorization: Bearer first\r\n", "AUTHORIZATION: Bearer second\r\n",
                              "Authorization: bearer second\r\n", "x-api-key: second\r\n"}) {
    SCOPED_TRACE(headers);
    EXPECT_EQ(Ask("POST", "/v1/completions", headers, kText).status, 200);
  }
}

TEST_F(ApiTest, OnlyNamedPagesMayRead) {
  constexpr const char* kPage = "Origin: https://app.example\r\n";
  Start();
  EXPECT_EQ(Ask("GET", "/v1/models", kPage).Header("Access-Control-Allow-Origin"), "");
  ServerOptions options;
  options.cors_origins = {"https://app.example"};
  options.api_keys = {"key"};
  Start(options);
  const WireResponse preflight =
      Ask("OPTIONS", "/v1/completions",
          std::string(kPage) + "Access-Control-Request-Headers: authorization\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.Header("Access-Control-Allow-Origin"), "https://app.example");
  EXPECT_EQ(preflight.Header("Access-Control-Allow-Headers"), "authorization");
  EXPECT_EQ(preflight.Header("Access-Control-Allow-Methods"), "POST, OPTIONS");
  // Also errors, or the page could not show them; and streams.
  EXPECT_EQ(Ask("GET", "/v1/models", kPage).Header("Access-Control-Allow-Origin"),
            "https://app.example");
  const WireResponse stream =
      Ask("POST", "/v1/completions", std::string(kPage) + "x-api-key: key\r\n",
          R"({"prompt":"Hi","max_tokens":1,"stream":true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.Header("Access-Control-Allow-Origin"), "https://app.example");
  // And what is refused before anybody looks at it.
  const WireResponse large = Ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" +
                                 std::string(kPage) + "Content-Length: 99999999\r\n\r\n");
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(large.Header("Access-Control-Allow-Origin"), "https://app.example");
  const WireResponse other = Ask("GET", "/health", "Origin: https://evil.example\r\n");
  EXPECT_EQ(other.Header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(other.Header("Vary"), "Origin");
}

TEST_F(ApiTest, OpenServersRefusePagesOfOthers) {
  const auto status = [this](const std::string& host, const std::string& headers = "",
                             const char* method = "POST") {
    return Ask(std::string(method) + " /v1/completions HTTP/1.1\r\nHost: " + host + "\r\n" +
               headers + "Content-Length: 33\r\n\r\n" + R"({"prompt":"Hi","max_tokens":   1})")
        .status;
  };
  ServerOptions options;
  options.allowed_hosts = {"Box.lan"};
  options.cors_origins = {"https://app.example"};
  Start(options);
  for (const char* host : {"localhost", "LOCALHOST:8080", "a.localhost", "127.0.0.1:1", "10.1.2.3",
                           "[::1]:8080", "[::1]", "box.lan:80", ""}) {
    EXPECT_EQ(status(host), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[",
                           "localhost.evil.example", "[evil", ":"}) {
    EXPECT_EQ(status(host), 403) << host;
  }
  const WireResponse refused =
      Ask("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(At(Parsed(refused.body), {"error", "code"}), Json("forbidden_page"));

  EXPECT_EQ(status("localhost:80", "Origin: http://localhost:80\r\n"), 200);
  EXPECT_EQ(status("localhost:80", "Origin: https://app.example\r\n"), 200);
  for (const char* origin :
       {"https://evil.example", "null", "http://localhost:81", "localhost:80"}) {
    EXPECT_EQ(status("localhost:80", "Origin: " + std::string(origin) + "\r\n"), 403) << origin;
  }
  // A key is what pages of others do not have.
  options.api_keys = {"key"};
  Start(options);
  EXPECT_EQ(status("llm.example", "Origin: https://evil.example\r\nx-api-key: key\r\n"), 200);
}

// However the loopback address is spelled.
TEST_F(ApiTest, NamesOfOthersAreRefusedWhereverItListensLocally) {
  for (const char* host : {"LOCALHOST", "127.0.0.1", "127.1"}) {
    ServerOptions options;
    options.host = host;
    Start(options);
    const auto status_of = [&](const std::string& name) {
      return Ask("GET /health HTTP/1.1\r\nHost: " + name + "\r\n\r\n").status;
    };
    for (const char* evil : {"evil.example", "[::1].evil.example", "evil.example#.localhost",
                             "localhost:80.evil.example"}) {
      EXPECT_EQ(status_of(evil), 403) << host << " " << evil;
    }
    for (const char* own : {"localhost", "Localhost:80", "[::1]:80", "127.0.0.1", "a.localhost"}) {
      EXPECT_EQ(status_of(own), 200) << host << " " << own;
    }
  }
}

TEST_F(ApiTest, LateAnswersEnd) {
  ServerOptions options;
  options.request_timeout = std::chrono::milliseconds(300);
  Start(options);
  // Far more tokens than any machine makes in that time.
  const WireResponse response =
      Ask("POST", "/v1/completions", "",
          R"({"prompt":"Hi","max_tokens":4000,"n":32,"logit_bias":{"97":100}})");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json body = Parsed(response.body);
  EXPECT_EQ(At(body, {"choices", "31", "finish_reason"}), Json("length"));
  EXPECT_LT(At(body, {"usage", "completion_tokens"}).as_int(), 32 * 4000);
}

TEST_F(ApiTest, RecordsSayWhatWasReused) {
  std::vector<RequestRecord> records;  // read when the server has stopped
  ServerOptions options;
  options.request_log = [&](const RequestRecord& record) { records.push_back(record); };
  Start(options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Ask("POST", "/v1/completions", "", kText).status, 200);
  }
  const std::string metrics = Ask("GET", "/metrics", "").body;
  EXPECT_NE(metrics.find("kvasir_cached_tokens_total 1\n"), std::string::npos) << metrics;
  server_->Stop();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].path, "/v1/completions");
  EXPECT_EQ(records[1].prompt_tokens, 2);
  EXPECT_EQ(records[1].cached_tokens, 1);
  EXPECT_EQ(records[1].generated_tokens, 2);
  EXPECT_EQ(records[1].finish, "length");
  EXPECT_TRUE(records[1].first_token_ms.has_value());
}

TEST_F(ApiTest, HeaderSaysWhereThePromptParted) {
  Start();
  for (const bool is_stream : {false, true}) {
    const std::string rest =
        is_stream ? R"(,"max_tokens":1,"stream":true})" : R"(,"max_tokens":1})";
    const std::string first = is_stream ? "stream " : "";
    (void)Ask("POST", "/v1/completions", "", R"({"prompt":")" + first + "abcdef\"" + rest);
    const WireResponse response =
        Ask("POST", "/v1/completions", "", R"({"prompt":")" + first + "abcXYZ\"" + rest);
    const std::string known = std::to_string(first.size() + 3);
    EXPECT_EQ(response.Header("Kvasir-Cache"), "prompt=" + std::to_string(first.size() + 6) +
                                                   ", cached=" + known + ", known=" + known);
  }
}

// All choices and prompts of a request end with its client.
TEST_F(ApiTest, ClientsThatGoAwayAreNoticedOnEveryRoute) {
  ServerOptions options;
  options.max_unsent_bytes = 4096;
  options.send_buffer_bytes = 4096;
  std::mutex mutex;
  std::condition_variable recorded;
  int gone = 0;
  options.request_log = [&](const RequestRecord& record) {
    const std::lock_guard lock(mutex);
    gone += record.status == 0;
    recorded.notify_all();
  };
  Start(options);
  const auto body = [](std::string more) {
    return R"({"max_tokens":3000,"max_output_tokens":3000,"stream":true,"ignore_eos":true,)" +
           std::string(R"("logit_bias":{"97":100},)") + more + "}";
  };
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"/v1/completions", body(R"("prompt":["Hi","Ho"],"n":8)")},
      {"/v1/messages", body(R"("messages":[{"role":"user","content":"Hi"}])")},
      {"/v1/responses", body(R"("input":"Hi")")}};
  for (const auto& [path, text] : requests) {
    SCOPED_TRACE(path);
    TestClient client(server_->port(), 4096);
    ASSERT_TRUE(client.SendRequest("POST", path, text));
    ASSERT_TRUE(client.ReadUntil("\"a\""));
    client.Reset();
    EXPECT_EQ(Ask("POST", "/v1/completions", "", kText).status, 200);
  }
  {
    // Somebody else's short answer may be done before the reset has been noticed.
    std::unique_lock lock(mutex);
    EXPECT_TRUE(recorded.wait_for(lock, std::chrono::seconds(60), [&] { return gone == 3; }));
  }
  const std::string metrics = Ask("GET", "/metrics", "").body;
  EXPECT_NE(metrics.find("kvasir_requests_total{status=\"0\"} 3\n"), std::string::npos) << metrics;
}

}  // namespace
}  // namespace kvasir
