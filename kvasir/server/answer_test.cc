// When an answer is sent, and when it ends, without server and engine.
#include "kvasir/server/answer.h"

#include <gtest/gtest.h>

#include "kvasir/server/chat_format.h"

namespace kvasir {
namespace {

using std::chrono::hours;
using std::chrono::steady_clock;

class AnswerTest : public testing::Test {
 protected:
  Answer Make(AnswerOptions options) {
    options.ping_interval = hours(1);
    return {std::move(options), std::make_unique<ChatFormat>(ChatFormatOptions()),
            HttpReply(exchange_, HttpForm()), RequestObserver()};
  }
  std::string Sent() { return exchange_->Take().bytes; }

  const std::shared_ptr<HttpExchange> exchange_ = std::make_shared<HttpExchange>(1 << 20, nullptr);
};

TEST_F(AnswerTest, TimeCountsFromTheRequestsArrival) {
  const steady_clock::time_point now = steady_clock::now();
  EXPECT_TRUE(Make({.arrived = now - hours(2), .time_limit = hours(1)}).is_cancelled());
  EXPECT_FALSE(Make({.arrived = now, .time_limit = hours(1)}).is_cancelled());
  EXPECT_FALSE(Make({.arrived = now - hours(2)}).is_cancelled());
}

// Text that is held back is nothing that a client which is gone could be noticed by.
TEST_F(AnswerTest, AStreamThatShowsNothingGivesASignWhenItIsAskedFor) {
  Answer answer = Make({.arrived = steady_clock::now(), .is_stream = true});
  answer.OnToken(0, nullptr);
  EXPECT_NE(Sent().find("text/event-stream"), std::string::npos);
  answer.OnToken(0, nullptr);
  EXPECT_EQ(Sent(), "");
  exchange_->AskForBytes();
  answer.OnToken(0, nullptr);
  EXPECT_NE(Sent().find("\r\n: "), std::string::npos);
  answer.OnToken(0, nullptr);
  EXPECT_EQ(Sent(), "");
  exchange_->AskForBytes();
  answer.OnPrompt(0, {});
  EXPECT_NE(Sent().find("\r\n: "), std::string::npos);
}

}  // namespace
}  // namespace kvasir
