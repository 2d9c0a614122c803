#include "kvasir/engine/scheduler.h"

#include <algorithm>
#include <string>

namespace kvasir {
namespace {

class Plan {
 public:
  explicit Plan(std::span<const SchedulerInput> inputs)
      : inputs_(inputs), tokens_(inputs.size(), 0) {}

  int64_t Wanted(size_t i) const {
    return std::min(inputs_[i].pending_tokens, inputs_[i].run_limit) - tokens_[i];
  }
  // Returns the tokens given, at most `tokens`.
  int64_t Give(size_t i, int64_t tokens) {
    const int64_t given = std::min(tokens, Wanted(i));
    tokens_[i] += given;
    return given;
  }
  // Max-min fair: in ascending order of need, each gets an equal part of what is left.
  int64_t Share(std::vector<size_t> members, int64_t tokens) {
    std::stable_sort(members.begin(), members.end(),
                     [&](size_t a, size_t b) { return Wanted(a) < Wanted(b); });
    int64_t given = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const int64_t left = static_cast<int64_t>(members.size() - i);
      // Rounded up, so that a budget smaller than the crowd goes to somebody.
      given += Give(members[i], (tokens - given + left - 1) / left);
    }
    return given;
  }

  std::vector<int64_t> Take() { return std::move(tokens_); }

 private:
  std::span<const SchedulerInput> inputs_;
  std::vector<int64_t> tokens_;
};

}  // namespace

Status SchedulerOptions::Validate() const {
  if (mixed_step_tokens >= 1 && mixed_step_tokens <= step_tokens) return {};
  return {ErrorCode::kInvalidArgument,
          "scheduler: step_tokens is " + std::to_string(step_tokens) +
              " and mixed_step_tokens is " + std::to_string(mixed_step_tokens) +
              "; give the second at least 1 and the first at least as much"};
}

std::vector<int64_t> PlanStep(std::span<const SchedulerInput> inputs,
                              const SchedulerOptions& options) {
  Plan plan(inputs);
  std::vector<size_t> prompts;
  int64_t decodes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_decode) {
      decodes += plan.Give(i, 1);
    } else {
      prompts.push_back(i);
    }
  }
  if (prompts.empty()) return plan.Take();
  const int64_t budget = decodes > 0 ? options.mixed_step_tokens : options.step_tokens;
  int64_t left = std::max(budget - decodes, (budget + 3) / 4);

  const bool is_alone = prompts.size() == 1;
  left -= plan.Give(prompts[0], is_alone ? left : (left + 1) / 2);
  std::vector<size_t> others(prompts.begin() + 1, prompts.end());
  std::stable_sort(others.begin(), others.end(),
                   [&](size_t a, size_t b) { return inputs[a].priority > inputs[b].priority; });
  for (auto first = others.begin(); first != others.end();) {
    const auto last = std::find_if(first, others.end(), [&](size_t i) {
      return inputs[i].priority != inputs[*first].priority;
    });
    left -= plan.Share({first, last}, left);
    first = last;
  }
  for (const size_t i : prompts) left -= plan.Give(i, left);
  return plan.Take();
}

}  // namespace kvasir
