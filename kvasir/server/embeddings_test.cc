// POST /v1/embeddings and /embedding over real sockets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "kvasir/server/server.h"
#include "kvasir/server/test_client.h"
#include "kvasir/server/test_json.h"
#include "kvasir/server/test_model.h"

namespace kvasir {
namespace {

class EmbeddingsTest : public testing::Test {
 protected:
  void Start(Pooling pooling = Pooling::kMean) {
    auto bundle = LoadTestModel();
    ASSERT_TRUE(bundle.ok()) << bundle.error().message;
    server_.reset();
    bundle_ = *std::move(bundle);
    ServerOptions options;
    options.port = 0;
    options.model_name = "tiny";
    options.pooling = pooling;
    auto server = Server::Start(bundle_.get(), options);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }
  WireResponse Ask(const std::string& body, const char* path = "/v1/embeddings") {
    return Exchange(server_->port(), "POST", path, body);
  }
  // Entry `index` of "data".
  std::vector<double> Embedding(const std::string& body, const std::string& index = "0") {
    const WireResponse response = Ask(body);
    EXPECT_EQ(response.status, 200) << response.body;
    return Numbers(At(Parsed(response.body), {"data", index, "embedding"}));
  }
  static std::vector<double> Numbers(const Json& array) {
    std::vector<double> numbers;
    EXPECT_TRUE(array.is_array());
    if (!array.is_array()) return numbers;
    for (const Json& value : array.as_array()) numbers.push_back(value.as_double());
    return numbers;
  }
  static double Length(const std::vector<double>& vector) {
    double squares = 0;
    for (const double value : vector) squares += value * value;
    return std::sqrt(squares);
  }

  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<Server> server_;
};

TEST_F(EmbeddingsTest, TextsTokensAndBatchesAgree) {
  Start();
  const auto hello = Embedding(R"({"input":"Hello","model":"m"})");
  EXPECT_EQ(static_cast<int64_t>(hello.size()), bundle_->model().hidden_size());
  EXPECT_NEAR(Length(hello), 1, 1e-6);  // of floats near 0.1, rounded
  EXPECT_EQ(Embedding(R"({"input":[72,101,108,108,111]})"), hello);
  const std::string batch = R"({"input":["Other","Hello","A third, longer text"],"model":"m"})";
  EXPECT_EQ(Embedding(batch, "1"), hello);
  EXPECT_NE(Embedding(batch, "0"), hello);
  EXPECT_EQ(Embedding(R"({"input":[[72,105],[72,101,108,108,111]]})", "1"), hello);
  const Json whole = Parsed(Ask(batch).body);
  EXPECT_EQ(At(whole, {"object"}), Json("list"));
  EXPECT_EQ(At(whole, {"model"}), Json("m"));
  EXPECT_EQ(At(whole, {"data", "2", "object"}), Json("embedding"));
  EXPECT_EQ(At(whole, {"data", "2", "index"}), Json(2));
  EXPECT_EQ(At(whole, {"usage", "prompt_tokens"}), Json(5 + 5 + 20));
  EXPECT_EQ(At(whole, {"usage", "total_tokens"}), Json(5 + 5 + 20));
}

// The official Python client asks for base64 unless told otherwise.
TEST_F(EmbeddingsTest, Base64HasTheSameBits) {
  Start();
  const auto wanted = Embedding(R"({"input":"Hello"})");
  const WireResponse response = Ask(R"({"input":"Hello","encoding_format":"base64"})");
  const std::string text = At(Parsed(response.body), {"data", "0", "embedding"}).as_string();
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = digits.find(text[i]);
    bits = bits << 6 | static_cast<uint32_t>(digit == std::string_view::npos ? 0 : digit);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);
  }
  ASSERT_GE(bytes.size(), wanted.size() * sizeof(float));
  for (size_t i = 0; i < wanted.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
    EXPECT_EQ(value, static_cast<float>(wanted[i]));
  }
}

TEST_F(EmbeddingsTest, DimensionsAreTheFirstOnes) {
  Start();
  const auto all = Embedding(R"({"input":"Hello"})");
  const auto some = Embedding(R"({"input":"Hello","dimensions":4})");
  ASSERT_EQ(some.size(), 4u);
  EXPECT_NEAR(Length(some), 1, 1e-6);
  for (size_t i = 1; i < some.size(); ++i) {
    EXPECT_NEAR(some[i] * all[0], all[i] * some[0], 1e-6) << "another direction";
  }
}

TEST_F(EmbeddingsTest, PoolingIsTheServers) {
  Start();
  const auto mean = Embedding(R"({"input":"Hello"})");
  const auto one = Embedding(R"({"input":"o"})");
  Start(Pooling::kLast);
  const auto last = Embedding(R"({"input":"Hello"})");
  EXPECT_NE(last, mean);
  EXPECT_EQ(Embedding(R"({"input":"o"})"), one) << "of one token both are the same";
  // The second time its prefix is known, and the bits are the same.
  const Json again = Parsed(Ask(R"({"input":"Hello"})").body);
  EXPECT_EQ(Numbers(At(again, {"data", "0", "embedding"})), last);
  EXPECT_EQ(At(again, {"usage", "prompt_tokens_details", "cached_tokens"}), Json(4));
}

TEST_F(EmbeddingsTest, AsLlamaServer) {
  Start();
  const auto wanted = Embedding(R"({"input":"Hello"})");
  const Json answer = Parsed(Ask(R"({"content":"Hello"})", "/embedding").body);
  EXPECT_EQ(Numbers(At(answer, {"0", "embedding", "0"})), wanted);
  EXPECT_EQ(At(answer, {"0", "index"}), Json(0));
}

TEST_F(EmbeddingsTest, WhatIsWrongIsNamed) {
  Start();
  const auto param = [&](const std::string& body) {
    const WireResponse response = Ask(body);
    EXPECT_EQ(response.status, 400) << body;
    return At(Parsed(response.body), {"error", "param"});
  };
  EXPECT_EQ(param("{}"), Json("input"));
  EXPECT_EQ(param(R"({"input":""})"), Json("input"));
  EXPECT_EQ(param(R"({"input":[]})"), Json("input"));
  EXPECT_EQ(param(R"({"input":["a",1]})"), Json("input[1]"));
  EXPECT_EQ(param(R"({"input":[1,999999]})"), Json("input"));
  EXPECT_EQ(param(R"({"input":"a","encoding_format":"hex"})"), Json("encoding_format"));
  EXPECT_EQ(param(R"({"input":"a","dimensions":0})"), Json("dimensions"));
  EXPECT_EQ(param(R"({"input":"a","dimensions":100000})"), Json("dimensions"));
  EXPECT_EQ(param(R"({"input":"a","embd_normalize":-1})"), Json("embd_normalize"));
  EXPECT_EQ(param(R"({"input":")" + std::string(5000, 'x') + "\"}"), Json("input"));
  std::string many = R"({"input":[")";
  for (int i = 0; i < 2048; ++i) many += "a\",\"";
  EXPECT_EQ(param(many + "a\"]}"), Json("input"));
}

}  // namespace
}  // namespace kvasir
