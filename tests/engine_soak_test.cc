// A machine that is always out of memory: eviction, preemption and swapping never stop, clients
// come with priorities and tenants, fall behind, and go away. Every answer is that of its request
// alone, drafted or not, no tenant ever gets what another one's tokens left, and nothing is left at
// the end. A failure prints its seed. KVASIR_SOAK_REQUESTS=20000 KVASIR_SOAK_SEED=7 make it long
// and other.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_bench.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/swap_folder.h"

namespace kvasir {
namespace {

constexpr uint64_t kTenants = 3;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Soak {
 public:
  enum class Drafts { kNone, kOracle };
  Soak(const TinyPolicy& policy, uint64_t seed, Drafts drafts) : bench_(policy), random_(seed) {
    requests_ = Mixed(bench_.model().vocab_size());
    size_t largest = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      requests_[i].max_tokens = 80 + 40 * static_cast<int64_t>(i % 5);
      wanted_.push_back(bench_.Alone(requests_[i]));
      const auto prompt = static_cast<Position>(requests_[i].prompt.size());
      largest = std::max(largest, bench_.spec().BytesAt(prompt + requests_[i].max_tokens));
    }
    budget_ = largest + 4 * bench_.spec().BytesAt(1);
    EngineOptions options = bench_.FlatCosts();
    options.scheduler = {64, 32};
    options.max_streams = 6;
    options.swap = {.dir = folder_.path(), .max_bytes = 4 * budget_, .ignores_rates = true};
    bench_.Start(budget_, std::move(options), KvPoolOptions().max_slab_bytes);
    if (drafts == Drafts::kOracle) UseOracle();
  }

  void Run(size_t requests) {
    for (int64_t steps = 0; clients_.size() < requests || bench_.engine().has_work(); ++steps) {
      ASSERT_LT(steps, 1000 * static_cast<int64_t>(requests));
      if (clients_.size() < requests && bench_.engine().Stats().waiting_requests < 8) Come();
      if (random_() % 16 == 0) Change();
      if (random_() % 64 == 0) (void)folder_.ChangeFiles(100);
      bench_.engine().Step();
      ASSERT_LE(bench_.pool().used_bytes(), budget_);
    }
  }

  void ExpectRightAnswers() {
    int64_t whole = 0;
    for (const auto& [id, client] : clients_) {
      ASSERT_TRUE(bench_.IsFinished(id));
      const GenerationResult& answer = bench_.Answer(id);
      const Tokens& wanted = wanted_[client.request];
      if (!client.is_gone) {
        ++whole;
        EXPECT_EQ(answer.tokens, wanted) << client.request;
      }
      // Whoever left got the beginning of it.
      ASSERT_LE(answer.tokens.size(), wanted.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), wanted.begin()));
      EXPECT_LE(answer.stats.cached_tokens, answer.stats.known_prefix_tokens);
      if (!client.is_stranger) continue;
      EXPECT_EQ(answer.stats.known_prefix_tokens, 0);
    }
    EXPECT_GT(whole, 0);
  }

  void ExpectNothingLeft() {
    EXPECT_EQ(bench_.LiveBytes(), 0u);
    bench_.engine().prefix_tree().Clear();
    EXPECT_EQ(bench_.pool().used_bytes(), 0u);
    EXPECT_EQ(bench_.engine().Stats().swap_bytes, 0u);
    EXPECT_EQ(bench_.engine().Stats().active_streams, 0);
  }
  EngineStats Stats() { return bench_.engine().Stats(); }

 private:
  struct Client {
    size_t request = 0;
    bool is_paused = false;
    bool is_gone = false;
    bool is_stranger = false;  // its tenant's only request
  };

  void Come() {
    const size_t which = random_() % requests_.size();
    EngineRequest request = requests_[which];
    request.salt = random_() % kTenants;
    request.priority = static_cast<int>(random_() % 3);
    auto client = std::make_unique<Client>();
    client->request = which;
    client->is_stranger = random_() % 8 == 0;
    if (client->is_stranger) request.salt = kTenants + clients_.size();
    EngineCallbacks callbacks;
    callbacks.is_paused = [client = client.get()] { return client->is_paused; };
    const RequestId id = bench_.Submit(request, std::move(callbacks));
    clients_.emplace(id, *client);
    live_.emplace(id, std::move(client));
  }

  void UseOracle() {
    auto oracle = std::make_unique<OracleDrafter>(OracleOptions{.wrong_percent = 15});
    for (size_t i = 0; i < requests_.size(); ++i) oracle->Learn(requests_[i].prompt, wanted_[i]);
    bench_.engine().UseDrafter(std::move(oracle));
  }

  // Somebody leaves, falls behind or catches up.
  void Change() {
    if (live_.empty()) return;
    const auto chosen = std::next(live_.begin(), static_cast<ptrdiff_t>(random_() % live_.size()));
    const auto [id, client] = std::pair(chosen->first, chosen->second.get());
    if (!bench_.IsFinished(id) && random_() % 4 != 0) {
      client->is_paused = !client->is_paused;
      return;
    }
    if (!bench_.IsFinished(id)) {
      clients_.at(id).is_gone = true;
      bench_.engine().Cancel(id);
      ASSERT_TRUE(bench_.IsFinished(id));
    }
    live_.erase(chosen);
  }

  SwapFolder folder_;
  Bench bench_;
  std::mt19937_64 random_;
  std::vector<EngineRequest> requests_;
  std::vector<Tokens> wanted_;
  size_t budget_ = 0;
  std::map<RequestId, Client> clients_;
  std::map<RequestId, std::unique_ptr<Client>> live_;
};

class EngineSoakTest : public testing::TestWithParam<TinyPolicy> {
 protected:
  EngineStats Run(Soak::Drafts drafts) {
    const uint64_t seed = FromEnvironment("KVASIR_SOAK_SEED", 1);
    SCOPED_TRACE("KVASIR_SOAK_SEED=" + std::to_string(seed));
    Soak soak(GetParam(), seed, drafts);
    soak.Run(FromEnvironment("KVASIR_SOAK_REQUESTS", 60));
    if (HasFatalFailure()) return {};
    soak.ExpectRightAnswers();
    const EngineStats stats = soak.Stats();
    EXPECT_GT(stats.preemptions, 0);
    EXPECT_GT(stats.swapped_out, 0);
    RecordProperty("preemptions", static_cast<int>(stats.preemptions));
    RecordProperty("swapped_in", static_cast<int>(stats.swapped_in));
    RecordProperty("swaps_lost", static_cast<int>(stats.swaps_lost));
    soak.ExpectNothingLeft();
    return stats;
  }
};

TEST_P(EngineSoakTest, EveryAnswerIsRightAndNothingIsLeft) {
  EXPECT_EQ(Run(Soak::Drafts::kNone).drafted_tokens, 0);
}

TEST_P(EngineSoakTest, AlsoWithDrafts) {
  // A state behind each draft takes room that is short here.
  const bool has_states = std::string_view(GetParam().folder) == kTinyStates;
  EXPECT_GT(Run(Soak::Drafts::kOracle).accepted_drafts, has_states ? 10 : 100);
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineSoakTest, testing::ValuesIn(EnginePolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

// A token sequence that only one tenant has ever sent or been answered is never known to another.
TEST(EngineIsolationTest, CanaryTokensStayWithTheirTenant) {
  for (const char* folder : {kTinyFull, kTinyWindows, kTinyStates}) {
    Bench bench({"f32", folder, "f32", "f32"});
    bench.Start();
    const Tokens canary = RandomTokens(200, bench.model().vocab_size(), 77);
    EngineRequest mine = Request(canary, 40);
    mine.salt = 1;
    const RequestId owner = bench.Submit(mine);
    bench.engine().Step();  // while it is being read, too
    EngineRequest others = mine;
    others.salt = 2;
    const RequestId meanwhile = bench.Submit(others);
    bench.Drain();
    EXPECT_EQ(bench.Answer(meanwhile).stats.known_prefix_tokens, 0);
    EXPECT_EQ(bench.Answer(meanwhile).stats.cached_tokens, 0);
    // The answer is a secret as well.
    mine.prompt.insert(mine.prompt.end(), bench.Answer(owner).tokens.begin(),
                       bench.Answer(owner).tokens.end());
    mine.salt = 3;
    const RequestId later = bench.Submit(mine);
    bench.Drain();
    EXPECT_EQ(bench.Answer(later).stats.known_prefix_tokens, 0);
    mine.salt = 1;
    const RequestId again = bench.Submit(mine);
    bench.Drain();
    EXPECT_EQ(bench.Answer(again).stats.known_prefix_tokens, 239);
    EXPECT_EQ(bench.Answer(again).tokens, bench.Answer(later).tokens);
  }
}

}  // namespace
}  // namespace kvasir
