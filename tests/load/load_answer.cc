#include "tests/load/load_answer.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

constexpr std::string_view kData = "data: ";

Error Corrupt(const std::string& what, const std::string& body) {
  return {ErrorCode::kCorrupt, what + ": " + body.substr(0, 500)};
}

// The member at a path; null if there is none.
Json Member(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* value = &json;
  for (const std::string_view key : path) {
    value = value->Find(key);
    if (value == nullptr) return {};
  }
  return *value;
}

// One choice, put together from one or many pieces.
struct Choice {
  std::string text;
  std::string finish;
  std::map<std::string, std::string> scores;  // per member of logprobs, element by element

  void Add(const Json& piece) {
    for (const Json& part : {Member(piece, {"message", "content"}),
                             Member(piece, {"delta", "content"}), Member(piece, {"text"})}) {
      if (part.is_string()) text += part.as_string();
    }
    const Json reason = Member(piece, {"finish_reason"});
    if (reason.is_string()) finish += reason.as_string();
    const Json logprobs = Member(piece, {"logprobs"});
    if (!logprobs.is_object()) return;
    for (const auto& [name, list] : logprobs.as_object()) {
      if (!list.is_array()) continue;
      for (const Json& element : list.as_array()) scores[name] += element.Dump() + "\n";
    }
  }
  std::string Bits() const {
    std::string bits = finish + "\n" + text + "\n";
    for (const auto& [name, lines] : scores) bits += name + "\n" + lines;
    return bits;
  }
};

class Choices {
 public:
  // Of a whole answer or of one chunk.
  void Add(const Json& body) {
    const Json list = Member(body, {"choices"});
    if (!list.is_array()) return;
    for (const Json& piece : list.as_array()) {
      const Json index = Member(piece, {"index"});
      choices_[index.is_int() ? index.as_int() : -1].Add(piece);
    }
  }
  // Empty if a choice has no end, or more than one.
  std::string Bits() const {
    std::string bits;
    for (const auto& [index, choice] : choices_) {
      if (choice.finish != "stop" && choice.finish != "length") return {};
      bits += std::to_string(index) + " " + choice.Bits();
    }
    return bits;
  }

 private:
  std::map<int64_t, Choice> choices_;
};

Result<LoadAnswer> WithCounts(std::string bits, const Json& prompt, const Json& generated,
                              const std::string& body) {
  if (bits.empty() || !prompt.is_int() || !generated.is_int()) {
    return Corrupt("an answer that is not whole", body);
  }
  return LoadAnswer{std::move(bits), prompt.as_int(), generated.as_int()};
}

Result<LoadAnswer> ReadStream(const std::string& body) {
  Choices choices;
  Json usage;
  bool is_done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || is_done) return Corrupt("a stream with a wrong end", body);
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":")) continue;
    if (!event.starts_with(kData)) return Corrupt("an event without data", event);
    is_done = event == "data: [DONE]";
    if (is_done) continue;
    const auto chunk = Json::Parse(std::string_view(event).substr(kData.size()));
    if (!chunk.ok()) return Corrupt("an event that is no JSON", event);
    if (chunk->Find("error") != nullptr) return Corrupt("an error in a stream", event);
    choices.Add(*chunk);
    if (Member(*chunk, {"usage"}).is_object()) usage = Member(*chunk, {"usage"});
  }
  if (!is_done) return Corrupt("a stream without its end", body);
  return WithCounts(choices.Bits(), Member(usage, {"prompt_tokens"}),
                    Member(usage, {"completion_tokens"}), body);
}

Result<LoadAnswer> ReadWhole(const LoadRequest& request, const std::string& body) {
  const auto json = Json::Parse(body);
  if (!json.ok()) return Corrupt("a body that is no JSON", body);
  const Json usage = Member(*json, {"usage"});
  if (request.can_stream()) {
    Choices choices;
    choices.Add(*json);
    return WithCounts(choices.Bits(), Member(usage, {"prompt_tokens"}),
                      Member(usage, {"completion_tokens"}), body);
  }
  Json prompt = Member(usage, {"input_tokens"});
  const Json generated = Member(usage, {"output_tokens"});
  if (request.path == "/v1/messages") {
    const Json cached = Member(usage, {"cache_read_input_tokens"});
    if (!prompt.is_int() || !cached.is_int()) return Corrupt("usage without counts", body);
    prompt = prompt.as_int() + cached.as_int();
    return WithCounts(Member(*json, {"content"}).Dump() + Member(*json, {"stop_reason"}).Dump(),
                      prompt, generated, body);
  }
  const Json output = Member(*json, {"output"});
  std::string bits = Member(*json, {"status"}).Dump();
  if (!output.is_array()) return Corrupt("a response without output", body);
  for (const Json& item : output.as_array()) bits += Member(item, {"content"}).Dump();
  return WithCounts(std::move(bits), prompt, generated, body);
}

}  // namespace

std::string BodyOf(const LoadRequest& request, bool is_stream) {
  Json body = request.body;
  if (is_stream) {
    body.Set("stream", true);
    body.Set("stream_options", Json::Object{{"include_usage", true}});
  }
  return body.Dump();
}

Result<LoadAnswer> ReadAnswer(const LoadRequest& request, const WireResponse& response) {
  if (response.status == 0 || !response.is_complete) {
    return Corrupt("no whole response came, status " + std::to_string(response.status),
                   response.body);
  }
  if (response.status == 503 && !response.Header("Retry-After").empty()) {
    return {ErrorCode::kResourceExhausted, response.body};
  }
  if (response.status != 200) {
    return Corrupt("status " + std::to_string(response.status), response.body);
  }
  if (response.Header("Content-Type").starts_with("text/event-stream")) {
    return ReadStream(response.body);
  }
  return ReadWhole(request, response.body);
}

}  // namespace kvasir
