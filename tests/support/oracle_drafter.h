// A drafter that was told the answers, and says something else as often as it is asked to.
// Deliberately without a model: how often it is right is a number, for tests and for figures.
#ifndef KVASIR_TESTS_SUPPORT_ORACLE_DRAFTER_H_
#define KVASIR_TESTS_SUPPORT_ORACLE_DRAFTER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "kvasir/speculative/drafter.h"

namespace kvasir {

struct OracleOptions {
  uint32_t wrong_percent = 0;  // of all drafts
  // As many drafts as there is room for, for nothing, as n-grams are. Otherwise some of them, as a
  // draft model that has to be asked.
  bool is_cheap = false;
};

class OracleDrafter final : public Drafter {
 public:
  explicit OracleDrafter(const OracleOptions& options) : options_(options) {}

  // From now on this prompt is known to be answered so; maybe in other ways as well.
  void Learn(const std::vector<Token>& prompt, std::vector<Token> answer) {
    answers_[prompt].push_back(std::move(answer));
  }

  std::string_view kind() const override { return "oracle"; }
  bool is_cheap() const override { return options_.is_cheap; }
  std::unique_ptr<DraftState> NewState() override { return std::make_unique<DraftState>(); }
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override {
    std::vector<std::vector<Token>> drafts;
    for (const DraftRequest& request : requests) drafts.push_back(Guess(request));
    return drafts;
  }

 private:
  std::vector<Token> Guess(const DraftRequest& request) {
    const std::vector<Token> prompt(request.known.prompt.begin(), request.known.prompt.end());
    const std::vector<Token> said(request.known.answer.begin(), request.known.answer.end());
    std::vector<Token> drafts;
    const auto known = answers_.find(prompt);
    if (known == answers_.end()) return drafts;
    for (const std::vector<Token>& answer : known->second) {
      if (answer.size() <= said.size() || !std::equal(said.begin(), said.end(), answer.begin())) {
        continue;
      }
      drafts.assign(answer.begin() + static_cast<int64_t>(said.size()), answer.end());
      break;
    }
    const auto most = static_cast<size_t>(request.max_drafts);
    drafts.resize(std::min(drafts.size(), options_.is_cheap ? most : 1 + random_() % most));
    for (Token& draft : drafts) {
      if (random_() % 100 < options_.wrong_percent) draft = (draft + 1) % 40;
    }
    return drafts;
  }

  const OracleOptions options_;
  std::map<std::vector<Token>, std::vector<std::vector<Token>>> answers_;
  std::mt19937 random_{1};
};

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_ORACLE_DRAFTER_H_
