// What operators rely on, over real sockets: cancelling by id, time limits, metrics, the log.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/engine/draft_source.h"
#include "kvasir/server/running_answers.h"
#include "kvasir/server/server.h"
#include "kvasir/server/test_client.h"
#include "kvasir/server/test_json.h"
#include "kvasir/server/test_model.h"

namespace kvasir {
namespace {

// Streams about as many letters as the context holds, far more than are read.
constexpr const char* kLong =
    R"("max_tokens":3000,"max_output_tokens":3000,"stream":true,"ignore_eos":true,)"
    R"("logit_bias":{"97":100})";

class OperationsTest : public testing::Test {
 protected:
  OperationsTest() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    EXPECT_TRUE(WriteTestModel(folder_).ok());
  }
  ~OperationsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void Start(ServerOptions options = {}) {
    // One folder for all starts: files name the model they belong to.
    BundleOptions load;
    load.backend.threads = 1;
    load.kv_budget_bytes = 64 << 20;
    auto bundle = ModelBundle::Load(folder_, load);
    ASSERT_TRUE(bundle.ok()) << bundle.error().message;
    server_.reset();
    bundle_ = *std::move(bundle);
    options.port = 0;
    options.model_name = "tiny";
    options.log = [this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      (level == LogLevel::kDebug ? details_ : lines_).emplace_back(line);
    };
    auto server = Server::Start(bundle_.get(), options);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }
  WireResponse Ask(const char* method, const std::string& path, const std::string& body = "") {
    return Exchange(server_->port(), method, path, body);
  }
  WireResponse AskWithKey(const std::string& key, const std::string& path,
                          const std::string& body) {
    TestClient client(server_->port());
    client.Send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key +
                "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.Read();
  }
  // The first id in what a stream has sent.
  static std::string IdIn(const std::string& received) {
    std::smatch match;
    std::regex_search(received, match, std::regex("\"id\":\"([^\"]+)\""));
    return match.size() > 1 ? match[1].str() : "";
  }

  std::string folder_ = testing::TempDir() + "kvasir-operations-XXXXXX";
  std::mutex mutex_;
  std::vector<std::string> lines_, details_;  // read when the server has stopped
  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<Server> server_;
};

TEST_F(OperationsTest, AnAnswerCanBeCancelledByItsId) {
  Start();
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}],)";
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"/v1/chat/completions", messages},
      {"/v1/completions", R"("prompt":"Hi",)"},
      {"/v1/messages", messages},
      {"/v1/responses", R"("input":"Hi",)"}};
  for (const auto& [path, fields] : requests) {
    SCOPED_TRACE(path);
    TestClient client(server_->port());
    ASSERT_TRUE(client.SendRequest("POST", path, "{" + fields + kLong + "}"));
    ASSERT_TRUE(client.ReadUntil("\"a\""));
    const std::string id = IdIn(client.received());
    const WireResponse deleted = Ask("DELETE", path + "/" + id);
    EXPECT_EQ(deleted.status, 200) << deleted.body;
    EXPECT_EQ(At(Parsed(deleted.body), {"deleted"}), Json(true));
    const WireResponse answer = client.Read();
    EXPECT_TRUE(answer.is_complete);
    EXPECT_LT(answer.body.size(), 3000u * 40) << "it went on to its end";
    EXPECT_NE(answer.body.find(path.ends_with("messages")    ? "max_tokens"
                               : path.ends_with("responses") ? "response.incomplete"
                                                             : "\"length\""),
              std::string::npos);
    EXPECT_EQ(Ask("DELETE", path + "/" + id).status, 404) << "it has ended";
  }
  EXPECT_EQ(Ask("DELETE", "/v1/chat/completions/chatcmpl-nobody").status, 404);
  RunningAnswers running;
  const auto flag = running.Add("chatcmpl-1", 7);
  EXPECT_FALSE(running.Cancel("chatcmpl-1", 8)) << "somebody else's";
  EXPECT_FALSE(*flag);
  EXPECT_TRUE(running.Cancel("chatcmpl-1", 7));
  EXPECT_TRUE(*flag);
  EXPECT_EQ(Ask("DELETE", "/v1/chat/completions").status, 405);
  EXPECT_EQ(Ask("POST", "/v1/chat/completions/x", "{}").status, 404);
}

TEST_F(OperationsTest, ARequestMaySetItsOwnTime) {
  ServerOptions options;
  options.max_streams = 1;
  Start(options);
  // Far more than any machine makes in that time.
  const WireResponse response =
      Ask("POST", "/v1/completions",
          R"({"prompt":"Hi","max_tokens":4000,"n":64,"ignore_eos":true,"timeout_ms":200})");
  if (response.status == 200) {
    EXPECT_LT(At(Parsed(response.body), {"usage", "completion_tokens"}).as_int(), 64 * 4000);
  } else {
    EXPECT_EQ(response.status, 503);
  }
  const WireResponse wrong = Ask("POST", "/v1/completions", R"({"prompt":"Hi","timeout_ms":0})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(At(Parsed(wrong.body), {"error", "param"}), Json("timeout_ms"));
}

// Who has waited too long in the queue gets no empty answer, but an error that says so.
TEST_F(OperationsTest, TimeThatEndsInTheQueueIs503) {
  ServerOptions options;
  options.max_streams = 1;
  Start(options);
  TestClient running(server_->port());
  ASSERT_TRUE(running.SendRequest("POST", "/v1/completions",
                                  std::string(R"({"prompt":"Hi",)") + kLong + "}"));
  ASSERT_TRUE(running.ReadUntil("\"a\""));
  // A stream has no other status once it has begun, so it must not begin.
  for (const char* body :
       {R"({"prompt":"Ho","timeout_ms":1})", R"({"prompt":"Ho","timeout_ms":1,"stream":true})"}) {
    const WireResponse late = Ask("POST", "/v1/completions", body);
    EXPECT_EQ(late.status, 503) << late.body;
  }
}

// The place of a request is said alike in every API.
TEST_F(OperationsTest, ResponsesAreAskedForApartAndInTime) {
  Start({});
  const auto cached = [&](const std::string& salt) {
    const WireResponse response =
        Ask("POST", "/v1/responses",
            R"({"input":"What is the same for all of us","max_output_tokens":1,"cache_salt":")" +
                salt + "\"}");
    EXPECT_EQ(response.status, 200) << response.body;
    return At(Parsed(response.body), {"usage", "input_tokens_details", "cached_tokens"}).as_int();
  };
  EXPECT_EQ(cached("alice"), 0);
  EXPECT_GT(cached("alice"), 0);
  EXPECT_EQ(cached("bob"), 0);
  for (const char* field : {"timeout_ms", "priority"}) {
    const std::string wrong = std::string(",\"") + field + "\":100000000000}";
    for (const char* path : {"/v1/responses", "/v1/embeddings"}) {
      const WireResponse response = Ask("POST", path, R"({"input":"Hi")" + wrong);
      EXPECT_EQ(response.status, 400) << path;
      EXPECT_EQ(At(Parsed(response.body), {"error", "param"}), Json(field)) << path;
    }
  }
}

// The text format 0.0.4: every sample has a type that was declared before it, histograms are
// cumulative and end with their count.
std::map<std::string, double> ParseMetrics(const std::string& text) {
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;
  static const std::regex kType("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
  static const std::regex kHelp("# HELP [a-zA-Z_:][a-zA-Z0-9_:]* [^\\n]+");
  static const std::regex kSample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{[a-z]+=\"[^\"\\\\]*\"(,[a-z]+=\"[^\"\\\\]*\")*\\})? "
      "([-+.0-9eE]+)");
  EXPECT_TRUE(text.ends_with('\n'));
  std::istringstream lines(text);
  double last_bucket = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kType)) {
      EXPECT_TRUE(types.emplace(match[1], match[2]).second) << "declared twice: " << line;
      last_bucket = 0;
      continue;
    }
    if (std::regex_match(line, kHelp)) continue;
    if (!std::regex_match(line, match, kSample)) {
      ADD_FAILURE() << "no sample: " << line;
      continue;
    }
    std::string name = match[1];
    const double value = std::stod(match[4]);
    EXPECT_TRUE(samples.emplace(name + match[2].str(), value).second) << "twice: " << line;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      const std::string base = name.substr(0, name.size() - std::string(suffix).size());
      if (name.ends_with(suffix) && types[base] == "histogram") name = base;
    }
    EXPECT_NE(types[name], "") << "undeclared: " << line;
    if (types[name] == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << line;
    }
    if (match[1].str().ends_with("_bucket")) {
      EXPECT_GE(value, last_bucket) << line;
      last_bucket = value;
      if (match[2].str().find("+Inf") != std::string::npos) samples[name + " all"] = value;
    }
    if (match[1].str().ends_with("_count")) {
      EXPECT_EQ(value, samples[name + " all"]) << line;
    }
  }
  return samples;
}

TEST_F(OperationsTest, MetricsAreCompleteAndWellFormed) {
  ServerOptions options;
  options.api_keys = {"secret"};
  options.max_body_bytes = 1000;
  Start(options);
  const auto ask = [&](const std::string& method, const std::string& path, const std::string& body,
                       const std::string& key) {
    TestClient client(server_->port());
    EXPECT_TRUE(
        client.Send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + key +
                    "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body));
    return client.Read();
  };
  const std::string text = "/v1/completions";
  const auto prompt = [](int max_tokens, const std::string& more) {
    return R"({"prompt":"Hi","ignore_eos":true,"max_tokens":)" + std::to_string(max_tokens) + more +
           "}";
  };
  EXPECT_EQ(ask("POST", text, prompt(5, ""), "secret").status, 200);
  EXPECT_EQ(ask("POST", text, prompt(2, R"(,"stream":true)"), "secret").status, 200);
  EXPECT_EQ(ask("POST", text, "{", "secret").status, 400);
  EXPECT_EQ(ask("POST", text, "{}", "wrong").status, 401);
  EXPECT_EQ(ask("GET", "/nothing", "", "secret").status, 404);
  EXPECT_EQ(ask("POST", text, std::string(2000, ' '), "secret").status, 413);
  const auto samples = ParseMetrics(ask("GET", "/metrics", "", "secret").body);
  const auto responses = [&](const std::string& route, int status) {
    const auto found = samples.find("kvasir_http_responses_total{route=\"" + route +
                                    "\",status=\"" + std::to_string(status) + "\"}");
    return found == samples.end() ? 0 : found->second;
  };
  EXPECT_EQ(responses("/completions", 200), 2);
  EXPECT_EQ(responses("/completions", 400), 1);
  EXPECT_EQ(responses("/completions", 401), 1);
  EXPECT_EQ(responses("other", 404), 1);
  EXPECT_EQ(responses("none", 413), 1);
  EXPECT_EQ(samples.at("kvasir_requests_total{status=\"200\"}"), 2);
  EXPECT_EQ(samples.at("kvasir_prompt_tokens_total"), 4);
  EXPECT_EQ(samples.at("kvasir_cached_tokens_total"), 1);
  EXPECT_EQ(samples.at("kvasir_generated_tokens_total"), 7);
  EXPECT_EQ(samples.at("kvasir_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(samples.at("kvasir_inter_token_seconds_count"), 5);
  for (const char* name : {"kvasir_requests_running",
                           "kvasir_requests_waiting",
                           "kvasir_cache_used_bytes",
                           "kvasir_cache_budget_bytes",
                           "kvasir_cache_bytes{kind=\"live\"}",
                           "kvasir_cache_bytes{kind=\"cached\"}",
                           "kvasir_cache_bytes{kind=\"scratch\"}",
                           "kvasir_preemptions_total",
                           "kvasir_evictions_total",
                           "kvasir_evicted_bytes_total",
                           "kvasir_steps_total",
                           "kvasir_evaluated_tokens_total",
                           "kvasir_swapped_out_total",
                           "kvasir_swapped_in_total",
                           "kvasir_swaps_lost_total",
                           "kvasir_swap_bytes",
                           "kvasir_drafted_tokens_total",
                           "kvasir_accepted_drafts_total",
                           "kvasir_cache_bytes{kind=\"index\"}",
                           "kvasir_store_written_total",
                           "kvasir_store_removed_total",
                           "kvasir_store_failures_total",
                           "kvasir_store_fetched_tokens_total",
                           "kvasir_store_bytes"}) {
    EXPECT_EQ(samples.count(name), 1u) << name;
  }
}

TEST_F(OperationsTest, LogsAsMuchAsWanted) {
  const std::string body = R"({"prompt":[72,105],"max_tokens":2,"seed":7,"ignore_eos":true})";
  for (const auto detail :
       {RequestLogDetail::kNone, RequestLogDetail::kParameters, RequestLogDetail::kTokens}) {
    ServerOptions options;
    options.log_detail = detail;
    lines_.clear();
    details_.clear();
    Start(options);
    EXPECT_EQ(Ask("POST", "/v1/completions", body).status, 200);
    server_->Stop();
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_NE(lines_[0].find("/v1/completions 200: 2 prompt tokens (0 cached, 2 new"),
              std::string::npos)
        << lines_[0];
    const auto logs = [&](const std::string& text) {
      return std::any_of(details_.begin(), details_.end(), [&](const std::string& line) {
        return line.find(text) != std::string::npos;
      });
    };
    EXPECT_EQ(logs("\"seed\":\"7\""), detail != RequestLogDetail::kNone);
    EXPECT_EQ(logs("prompt tokens [72 105]"), detail == RequestLogDetail::kTokens);
    EXPECT_EQ(logs("answer tokens ["), detail == RequestLogDetail::kTokens);
  }
}

TEST_F(OperationsTest, SaysWhoDrafts) {
  Start();
  const auto shown = [&] {
    const Json slots = Parsed(Ask("GET", "/slots").body);
    return std::pair(At(Parsed(Ask("GET", "/props").body), {"drafts"}),
                     At(slots, {"0", "speculative"}));
  };
  EXPECT_EQ(shown(), std::pair(Json("none"), Json(false)));
  const auto drafts = DraftSource::Load({DraftKind::kNgram, "", {}}, *bundle_);
  ASSERT_TRUE(drafts.ok()) << drafts.error().message;
  server_.reset();
  ServerOptions options;
  options.port = 0;
  options.drafts = drafts->get();
  auto server = Server::Start(bundle_.get(), options);
  ASSERT_TRUE(server.ok()) << server.error().message;
  server_ = *std::move(server);
  EXPECT_EQ(shown(), std::pair(Json("what was said before"), Json(true)));
  server_.reset();
}

// What is cached outlives the server; what cannot be used is left alone.
class PromptCacheTest : public OperationsTest {
 protected:
  void Restart(size_t most_bytes = 0) {
    ServerOptions options;
    options.prompt_cache_file = file_;
    options.prompt_cache_bytes = most_bytes;
    Start(options);
  }
  // The text of an answer, and how many of the prompt's tokens were cached.
  std::pair<std::string, int64_t> Answer(const std::string& prompt) {
    const Json request = Json::Object{
        {"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}, {"ignore_eos", true}};
    const Json answer = Parsed(Ask("POST", "/v1/completions", request.Dump()).body);
    return {At(answer, {"choices", "0", "text"}).as_string(),
            At(answer, {"usage", "prompt_tokens_details", "cached_tokens"}).as_int()};
  }
  const std::string file_ = folder_ + "/prompts.kv";
  const std::string long_prompt_ = std::string(300, 'x') + "yz";
};

// What a server has just computed is stored before it ends, and the next one says so.
TEST_F(PromptCacheTest, StoredPrefixesOutliveTheServer) {
  ServerOptions options;
  options.cache_dir = folder_ + "/stored";
  ASSERT_TRUE(std::filesystem::create_directory(options.cache_dir));
  const std::string prompt = std::string(1200, 'x') + "yz";
  Start(options);
  const auto first = Answer(prompt);
  EXPECT_EQ(first.second, 0);
  server_->Stop();
  lines_.clear();
  Start(options);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].find(options.cache_dir + ": 2 stored prefixes, "), 0u) << lines_[0];
  EXPECT_EQ(Answer(prompt), std::pair(first.first, int64_t{1024}));
  EXPECT_NE(Ask("GET", "/metrics").body.find("kvasir_store_fetched_tokens_total 1024\n"),
            std::string::npos);
}

TEST_F(PromptCacheTest, OutlivesTheServer) {
  Restart();
  const auto first = Answer(long_prompt_);
  const auto other = Answer("Something else");
  EXPECT_EQ(first.second, 0);
  Restart();
  EXPECT_EQ(Answer(long_prompt_), std::pair(first.first, int64_t{301}));
  EXPECT_EQ(Answer("Something else"), std::pair(other.first, int64_t{13}));
  EXPECT_EQ(Answer(std::string(200, 'x') + "other").second, 200);
}

TEST_F(PromptCacheTest, KeepsWhatWasUsedLast) {
  Restart();
  (void)Answer(long_prompt_);
  (void)Answer("Something else");
  const size_t most = bundle_->cache_spec()->BytesAt(kBlockTokens);
  server_->Stop();
  Restart(most);  // reads all, and saves as much
  EXPECT_EQ(Answer("Something else").second, 13);
  Restart();
  EXPECT_EQ(Answer("Something else").second, 13);
  EXPECT_EQ(Answer(long_prompt_).second, 0);
}

TEST_F(PromptCacheTest, DamagedFilesAreNotUsed) {
  Restart();
  const auto first = Answer(long_prompt_);
  server_->Stop();
  auto contents = ReadFile(file_);
  ASSERT_TRUE(contents.ok());
  for (const size_t at : {size_t{3}, contents->size() - 1}) {
    std::string damaged = *contents;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_TRUE(WriteFileAtomic(file_, damaged).ok());
    lines_.clear();
    Restart();
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_NE(lines_[0].find("the prompt cache is not used: "), std::string::npos) << lines_[0];
    EXPECT_EQ(lines_[0].find("was saved with"), std::string::npos) << lines_[0];
    EXPECT_EQ(Answer(long_prompt_), std::pair(first.first, int64_t{0}));
    server_->Stop();
  }
}

TEST_F(PromptCacheTest, WhatARunCannotUseIsStillThereAfterIt) {
  Restart();
  (void)Answer(long_prompt_);
  server_->Stop();
  const auto contents = ReadFile(file_);
  ASSERT_TRUE(contents.ok());
  const std::string damaged = contents->substr(0, contents->size() - 1);
  const std::string unused = file_ + ".unused";
  // Without a request there is nothing to replace it.
  ASSERT_TRUE(WriteFileAtomic(file_, damaged).ok());
  ASSERT_TRUE(WriteFileAtomic(unused, "of a start before").ok());
  Restart();
  server_->Stop();
  EXPECT_EQ(*ReadFile(file_), damaged);
  EXPECT_EQ(*ReadFile(unused), "of a start before");
  Restart();
  (void)Answer(long_prompt_);
  server_->Stop();
  EXPECT_EQ(*ReadFile(unused), damaged);
  EXPECT_EQ(ReadFile(file_)->size(), contents->size());
  EXPECT_FALSE(FileExists(file_ + ".new"));
  // What was used is replaced and nothing else.
  Restart();
  EXPECT_EQ(Answer(long_prompt_).second, 301);
  server_->Stop();
  EXPECT_EQ(*ReadFile(unused), damaged);
}

// Slots: a conversation's cache in a file, by llama-server's route.
class SlotsTest : public PromptCacheTest {
 protected:
  void StartWithFolder() {
    ServerOptions options;
    options.slot_save_path = folder_;
    Start(options);
  }
  Json Act(const std::string& slot, const std::string& action, const std::string& filename,
           int status) {
    const Json body = Json::Object{{"filename", filename}};
    const auto response = Ask("POST", "/slots/" + slot + "?action=" + action, body.Dump());
    EXPECT_EQ(response.status, status) << response.body;
    return Parsed(response.body);
  }
  // With 300 tokens of prompt and 8 of answer, the last of which was never read.
  Json AnswerInSlot(int64_t slot) {
    const Json request = Json::Object{{"prompt", long_prompt_},
                                      {"max_tokens", 8},
                                      {"temperature", 0},
                                      {"ignore_eos", true},
                                      {"id_slot", slot}};
    return Parsed(Ask("POST", "/v1/completions", request.Dump()).body);
  }
};

TEST_F(SlotsTest, LinksAreNotFollowed) {
  StartWithFolder();
  AnswerInSlot(0);
  const std::string outside = folder_ + ".outside";
  ASSERT_TRUE(WriteFileAtomic(outside, "theirs").ok());
  std::filesystem::create_symlink(outside, folder_ + "/link");
  Act("0", "save", "link", 400);
  EXPECT_EQ(*ReadFile(outside), "theirs");
  Act("0", "restore", "link", 400);
  std::filesystem::remove(outside);
}

TEST_F(SlotsTest, AConversationOutlivesTheServer) {
  StartWithFolder();
  const Json first = AnswerInSlot(3);
  const Json saved = Act("3", "save", "talk.kv", 200);
  EXPECT_EQ(At(saved, {"id_slot"}), Json(3));
  EXPECT_EQ(At(saved, {"n_saved"}), Json(309));
  EXPECT_GT(At(saved, {"n_written"}).as_int(), 0);
  StartWithFolder();
  const Json restored = Act("1", "restore", "talk.kv", 200);
  EXPECT_EQ(At(restored, {"n_restored"}), Json(309));
  const Json again = AnswerInSlot(-1);
  EXPECT_EQ(At(again, {"choices", "0", "text"}), At(first, {"choices", "0", "text"}));
  EXPECT_EQ(At(again, {"usage", "prompt_tokens_details", "cached_tokens"}), Json(301));
  EXPECT_EQ(At(Act("1", "erase", "", 200), {"n_erased"}), Json(309));
  EXPECT_EQ(At(Act("1", "erase", "", 200), {"n_erased"}), Json(0));
}

TEST_F(SlotsTest, WhatCannotBeIsSaid) {
  StartWithFolder();
  EXPECT_NE(At(Act("0", "save", "a.kv", 400), {"error", "message"}).as_string().find("slot 0"),
            std::string::npos);
  (void)AnswerInSlot(0);
  for (const char* name : {"", "../a", "a/b", ".hidden", "a b"}) {
    EXPECT_EQ(At(Act("0", "save", name, 400), {"error", "param"}), Json("filename")) << name;
  }
  Act("0", "save", std::string(201, 'a'), 400);
  Act("0", "restore", "no-such-file", 404);
  Act("0", "dance", "a.kv", 400);
  Act("99999", "save", "a.kv", 404);
  Act("x", "save", "a.kv", 400);
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/damaged.kv", "KVASIR or something else").ok());
  const Json damaged = Act("0", "restore", "damaged.kv", 400);
  EXPECT_EQ(At(damaged, {"error", "message"}).as_string().find(folder_), std::string::npos);
  Start({});
  EXPECT_EQ(Ask("POST", "/slots/0?action=save", R"({"filename":"a"})").status, 501);
}

// Slots of two keys, and of two salts of one key, know nothing of each other.
class SlotsOfTenantsTest : public SlotsTest {
 protected:
  void StartWithKeys() {
    ServerOptions options;
    options.slot_save_path = folder_;
    options.api_keys = {"anna", "berta"};
    options.max_streams = 2;
    Start(options);
  }
  struct Who {
    std::string key;
    std::string salt;
  };
  // Returns how many tokens of the prompt were cached.
  int64_t AnswerOf(const Who& who, int64_t slot) {
    const Json request =
        Json::Object{{"prompt", long_prompt_}, {"max_tokens", 8},        {"temperature", 0},
                     {"ignore_eos", true},     {"cache_salt", who.salt}, {"id_slot", slot}};
    const auto response = AskWithKey(who.key, "/v1/completions", request.Dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return At(Parsed(response.body), {"usage", "prompt_tokens_details", "cached_tokens"}).as_int();
  }
  Json ActOf(const Who& who, int slot, const std::string& action, int status) {
    Json body = Json::Object{{"filename", "talk.kv"}};
    if (!who.salt.empty()) body.Set("cache_salt", who.salt);
    const std::string path = "/slots/" + std::to_string(slot) + "?action=" + action;
    const auto response = AskWithKey(who.key, path, body.Dump());
    EXPECT_EQ(response.status, status) << action << ' ' << response.body;
    EXPECT_EQ(response.body.find('@'), std::string::npos) << response.body;
    return Parsed(response.body);
  }

  const Who anna_ = {"anna", ""};
  const Who berta_ = {"berta", ""};
  const Who project_ = {"anna", "project"};
};

TEST_F(SlotsOfTenantsTest, NobodySavesErasesOrRestoresForOthers) {
  StartWithKeys();
  (void)AnswerOf(anna_, 1);
  for (const Who& other : {berta_, project_}) {
    SCOPED_TRACE(other.key + other.salt);
    ActOf(other, 1, "save", 400);
    EXPECT_EQ(At(ActOf(other, 1, "erase", 200), {"n_erased"}), Json(0));
  }
  EXPECT_EQ(At(ActOf(anna_, 1, "save", 200), {"n_saved"}), Json(309));
  for (const Who& other : {berta_, project_}) {
    SCOPED_TRACE(other.key + other.salt);
    ActOf(other, 1, "restore", 404);
    EXPECT_EQ(AnswerOf(other, 1), 0);
    // The same name is another file.
    ActOf(other, 1, "save", 200);
    EXPECT_EQ(At(ActOf(other, 1, "erase", 200), {"n_erased"}), Json(310));
  }
  EXPECT_EQ(At(ActOf(anna_, 1, "erase", 200), {"n_erased"}), Json(310));
  StartWithKeys();
  EXPECT_EQ(At(ActOf(anna_, 0, "restore", 200), {"n_restored"}), Json(309));
  ActOf(berta_, 0, "save", 400);
  EXPECT_EQ(AnswerOf(anna_, 0), 301);
  EXPECT_EQ(AnswerOf(berta_, 0), 0);
}

// However much one says: the other's slots stay. Within a tenant the latest stay.
TEST_F(SlotsOfTenantsTest, NobodyPushesOutOthers) {
  StartWithKeys();
  (void)AnswerOf(anna_, 0);
  (void)AnswerOf(anna_, 1);
  for (int i = 0; i < 3; ++i) (void)AnswerOf({"berta", std::to_string(i)}, 0);
  ActOf(anna_, 0, "save", 200);
  ActOf(anna_, 1, "save", 200);
  ActOf({"berta", "0"}, 0, "save", 400);
  ActOf({"berta", "1"}, 0, "save", 200);
  ActOf({"berta", "2"}, 0, "save", 200);
}

// A file that an operator has put into somebody else's folder.
TEST_F(SlotsOfTenantsTest, FilesSayWhoseTheyAre) {
  StartWithKeys();
  (void)AnswerOf(anna_, 0);
  ActOf(anna_, 0, "save", 200);
  (void)AnswerOf(berta_, 0);
  ActOf(berta_, 0, "save", 200);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.is_directory()) files.push_back(entry.path() / "talk.kv");
  }
  ASSERT_EQ(files.size(), 2u);
  std::filesystem::rename(files[0], folder_ + "/first");
  std::filesystem::rename(files[1], files[0]);
  std::filesystem::rename(folder_ + "/first", files[1]);
  StartWithKeys();
  ActOf(anna_, 0, "restore", 400);
  ActOf(berta_, 0, "restore", 400);
  EXPECT_EQ(AnswerOf(anna_, 0), 0);
  EXPECT_EQ(AnswerOf(berta_, 0), 0);
}

// Tenants: whoever has another key or another salt finds nothing that was said here.
TEST_F(PromptCacheTest, TenantsShareNothing) {
  ServerOptions options;
  options.api_keys = {"anna", "berta"};
  Start(options);
  const auto cached = [&](const std::string& key, const std::string& salt) {
    Json request = Json::Object{{"prompt", long_prompt_}, {"max_tokens", 4}, {"temperature", 0}};
    if (!salt.empty()) request.Set("cache_salt", salt);
    const auto response = AskWithKey(key, "/v1/completions", request.Dump());
    EXPECT_EQ(response.status, 200);
    return At(Parsed(response.body), {"usage", "prompt_tokens_details", "cached_tokens"}).as_int();
  };
  EXPECT_EQ(cached("anna", ""), 0);
  EXPECT_EQ(cached("anna", ""), 301);
  EXPECT_EQ(cached("berta", ""), 0);
  EXPECT_EQ(cached("anna", "project"), 0);
  EXPECT_EQ(cached("berta", "project"), 0);
  EXPECT_EQ(cached("anna", "project"), 301);
  EXPECT_EQ(cached("berta", ""), 301);
}

}  // namespace
}  // namespace kvasir
