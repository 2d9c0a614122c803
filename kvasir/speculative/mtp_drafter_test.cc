// Drafts of an assistant: the recorded chains, side by side as alone, and when there are none.
#include "kvasir/speculative/mtp_drafter.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/tiny_assistant.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

// One sequence whose tokens but the last the target has read.
struct Read {
  std::unique_ptr<KvSequence> cache;
  std::unique_ptr<DraftState> state;
  std::vector<float> hidden;
  Tokens known;
};

class MtpDrafterTest : public testing::TestWithParam<const char*> {
 protected:
  MtpDrafterTest() : pair_(GetParam()), drafter_(pair_.NewDrafter()) {}

  Read ReadAll(Tokens known) {
    Read read = {std::make_unique<KvSequence>(pair_.target().NewSequence()),
                 drafter_->NewState(),
                 {},
                 std::move(known)};
    const auto tokens = std::span(read.known).first(read.known.size() - 1);
    const SequenceRun run = {read.cache.get(), tokens, 0, 1};
    Workspace& workspace = pair_.target().workspace();
    KVASIR_CHECK(pair_.target().model().Forward(std::span(&run, 1), workspace).ok());
    const ConstFloatRows states = workspace.HiddenStates();
    read.hidden.assign(states.row(0), states.row(0) + states.cols);
    return read;
  }
  DraftRequest Request(const Read& read, int64_t most) const {
    return {.state = read.state.get(),
            .known = {read.known, {}},
            .max_drafts = most,
            .sampling = &sampling_,
            .target = read.cache.get(),
            .hidden = read.hidden};
  }
  Tokens Ask(const DraftRequest& request) { return drafter_->Propose(std::span(&request, 1))[0]; }

  TinyAssistant pair_;
  std::unique_ptr<Drafter> drafter_;
  SamplingOptions sampling_;
};

TEST_P(MtpDrafterTest, ChainsAreTheRecordedOnesInEitherPosition) {
  const Json golden = ValueOrDie(Json::ParseFile(pair_.folder() + "/golden.json"));
  for (const Json& chain : golden.Find("chains")->as_array()) {
    const Read read = ReadAll(TokensIn(*chain.Find("tokens")));
    drafter_ = pair_.NewDrafter(MtpPosition::kNext);
    EXPECT_EQ(Ask(Request(read, 5)), TokensIn(*chain.Find("next")->Find("drafts")));
    drafter_ = pair_.NewDrafter(MtpPosition::kRead);
    EXPECT_EQ(Ask(Request(read, 5)), TokensIn(*chain.Find("read")->Find("drafts")));
  }
}

TEST_P(MtpDrafterTest, SequencesAreDraftedForSideBySideAsAlone) {
  const int64_t vocabulary = pair_.target().model().vocab_size();
  sampling_.temperature = 1.5;
  std::vector<Read> reads;
  std::vector<DraftRequest> requests;
  for (uint64_t i = 0; i < 5; ++i) {
    reads.push_back(ReadAll(RandomTokens(2 + 37 * static_cast<int64_t>(i), vocabulary, i)));
  }
  for (size_t i = 0; i < reads.size(); ++i) {
    requests.push_back(Request(reads[i], 1 + static_cast<int64_t>(i * 3 % 5)));
  }
  const auto together = drafter_->Propose(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>(together[i].size()), requests[i].max_drafts);
    EXPECT_EQ(together[i], Ask(requests[i])) << i;
  }
}

TEST_P(MtpDrafterTest, WithoutAStateOrACacheThatFitsThereIsNoGuess) {
  const Read read = ReadAll({1, 2, 3, 4});
  DraftRequest request = Request(read, 3);
  EXPECT_EQ(Ask(request).size(), 3u);
  request.hidden = {};
  EXPECT_TRUE(Ask(request).empty());
  request = Request(read, 3);
  request.target = nullptr;
  EXPECT_TRUE(Ask(request).empty());
  // The cache does not hold all but the last token.
  const Tokens more = {1, 2, 3, 4, 5};
  request = Request(read, 3);
  request.known = {more, {}};
  EXPECT_TRUE(Ask(request).empty());
}

INSTANTIATE_TEST_SUITE_P(Pairs, MtpDrafterTest, testing::ValuesIn(kTinyAssistants),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kvasir
