#include "tests/load/load_requests.h"

#include <utility>

namespace kvasir {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

// Notes to be looked up, a dozen tokens each.
std::string Notes(int count, uint64_t first) {
  std::string notes;
  for (int i = 0; i < count; ++i) {
    const std::string room = std::to_string(first + static_cast<uint64_t>(i));
    notes += "The pass key of room " + room + " is " + std::to_string(4099 + 37 * i) + ". ";
  }
  return notes;
}

Json Message(const char* role, std::string content) {
  return Json::Object{{"role", role}, {"content", std::move(content)}};
}

Json Chat(std::string system, std::string question) {
  Json::Array messages;
  if (!system.empty()) messages.push_back(Message("system", std::move(system)));
  messages.push_back(Message("user", std::move(question)));
  return Json::Object{{"messages", std::move(messages)}, {"temperature", 0}, {"max_tokens", 24}};
}

Json With(Json body, const Json::Object& more) {
  for (const auto& [key, value] : more) body.Set(key, value);
  return body;
}

// Request `kind` of 8 over one prefix.
LoadRequest Reference(const std::string& prefix, int kind) {
  const std::string question = "What is the pass key of room " + std::to_string(kind + 1) + "?";
  const Json chat = Chat(prefix, question);
  const Json text =
      Json::Object{{"prompt", prefix + question}, {"temperature", 0}, {"max_tokens", 16}};
  switch (kind) {
    case 0:
      return {kChat, chat};
    case 1:
      return {kChat, With(chat, {{"logprobs", true}, {"top_logprobs", 3}})};
    case 2:
      return {kChat, With(chat, {{"temperature", 0.9}, {"seed", 7}, {"logprobs", true}})};
    case 3:
      return {kChat, With(chat, {{"stop", "is"}, {"ignore_eos", true}, {"max_tokens", 60}})};
    case 4:
      return {kText, With(text, {{"n", 2}, {"temperature", 1}, {"seed", 11}, {"logprobs", 0}})};
    case 5:
      return {kText, With(text, {{"logprobs", 2}, {"ignore_eos", true}, {"max_tokens", 40}})};
    case 6:
      return {"/v1/messages", Json::Object{{"system", prefix},
                                           {"messages", Json::Array{Message("user", question)}},
                                           {"temperature", 0},
                                           {"max_tokens", 20}}};
    default:
      return {"/v1/responses", Json::Object{{"instructions", prefix},
                                            {"input", question},
                                            {"temperature", 0},
                                            {"max_output_tokens", 20}}};
  }
}

BadRequest Bad(const char* path, const std::string& body, int status = 400) {
  return {HttpBytes(path, body), status};
}

}  // namespace

std::string HttpBytes(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::vector<LoadRequest> ReferenceRequests() {
  std::vector<LoadRequest> requests;
  for (const int notes : {1, 5, 30, 100}) {
    const std::string prefix = Notes(notes, 1);
    for (int kind = 0; kind < 8; ++kind) requests.push_back(Reference(prefix, kind));
  }
  return requests;
}

LoadRequest LongRequest() {
  // About 2 KB per token.
  return {
      kChat,
      With(Chat(Notes(10, 1), "Tell me all of them."),
           {{"logprobs", true}, {"top_logprobs", 20}, {"ignore_eos", true}, {"max_tokens", 400}})};
}

LoadRequest FreshRequest(uint64_t number) {
  return {kChat, With(Chat(Notes(8, 1000 + 10 * number), "What is the pass key of the last room?"),
                      {{"logprobs", true}})};
}

std::vector<BadRequest> BadRequests() {
  const std::string hello = R"("messages":[{"role":"user","content":"Hello"}])";
  std::vector<BadRequest> bad = {
      Bad(kChat, ""),
      Bad(kChat, "{"),
      Bad(kChat, "[]"),
      Bad(kChat, "null"),
      Bad(kChat, std::string(20000, '[')),
      Bad(kChat, "{\"messages\":\"\xff\xfe\"}"),
      Bad(kChat, R"({"messages":[]})"),
      Bad(kChat, R"({"messages":[{"role":"user","content":17}]})"),
      Bad(kChat, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
      Bad(kChat, "{" + hello + R"(,"temperature":"hot"})"),
      Bad(kChat, "{" + hello + R"(,"max_tokens":-7})"),
      Bad(kChat, "{" + hello + R"(,"max_tokens":1e300})"),
      Bad(kChat, "{" + hello + R"(,"n":1000000000})"),
      Bad(kChat, "{" + hello + R"(,"logit_bias":{"-5":1}})"),
      Bad(kChat, "{" + hello + R"(,"stop":[1,2]})"),
      Bad(kChat, "{" + hello + R"(,"stream":"yes"})"),
      Bad(kText, R"({"prompt":[-1]})"),
      Bad(kText, R"({"prompt":[99999999999]})"),
      Bad(kText, R"({"prompt":[]})"),
      Bad(kText, R"({"prompt":{"a":1}})"),
      Bad(kText, R"({"prompt":"x","suffix":"y"})"),
      Bad(kText, R"({"prompt":")" + Notes(800, 1) + R"("})"),
      Bad("/v1/messages", "{" + hello + "}"),
      Bad("/v1/responses", R"({"input":5})"),
      Bad("/tokenize", R"({"content":5})"),
      Bad("/detokenize", R"({"tokens":["a"]})"),
      Bad("/v1/none", "{}", 404),
  };
  bad.push_back({"GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405});
  bad.push_back({"What is this?\r\n\r\n", 400});
  bad.push_back(
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400});
  bad.push_back(
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
       "Content-Length: 999999999999\r\n\r\n",
       413});
  bad.push_back(
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
       "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
       400});
  bad.push_back(
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(100000, 'x') + "\r\n\r\n",
       431});
  return bad;
}

}  // namespace kvasir
