#include "kvasir/grammar/grammar_analysis.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/grammar/grammar_automaton.h"

namespace kvasir {
namespace {

using Op = GrammarInstruction::Op;

class Analysis {
 public:
  explicit Analysis(GrammarProgram* program) : program_(*program) {}

  Status Run() {
    FindUsers();
    FindNeeds();
    FindEmpty();
    KVASIR_TRY_OK(RankRules());
    const GrammarProgram::Rule& root = program_.rules[static_cast<size_t>(program_.root)];
    const int32_t need = program_.need[static_cast<size_t>(root.start)];
    if (need == GrammarProgram::kNever) {
      return {ErrorCode::kInvalidArgument, "no text satisfies the grammar or schema"};
    }
    if (need > GrammarAutomaton::kMaxDepth) {
      return {ErrorCode::kInvalidArgument,
              "grammar rule '" + root.name + "' takes " + std::to_string(need) +
                  " rules one in the other to be finished; at most " +
                  std::to_string(GrammarAutomaton::kMaxDepth) + " are followed"};
    }
    return {};
  }

 private:
  size_t size() const { return program_.code.size(); }
  int32_t StartOf(int32_t rule) const { return program_.rules[static_cast<size_t>(rule)].start; }

  template <typename Visit>
  void ForEachOperand(int32_t pc, const Visit& visit) const {
    const GrammarInstruction& instruction = program_.code[static_cast<size_t>(pc)];
    if (instruction.op == Op::kByte) visit(instruction.next);
    if (instruction.op == Op::kSplit) {
      visit(instruction.next);
      visit(instruction.other);
    }
    if (instruction.op == Op::kCall) {
      visit(instruction.next);
      visit(StartOf(instruction.other));
    }
  }

  // users_of(pc): the instructions whose facts follow from those of pc, in two flat arrays.
  void FindUsers() {
    users_begin_.assign(size() + 1, 0);
    const auto count = static_cast<int32_t>(size());
    for (int32_t pc = 0; pc < count; ++pc) {
      ForEachOperand(pc, [&](int32_t of) { ++users_begin_[static_cast<size_t>(of) + 1]; });
    }
    for (size_t i = 0; i < size(); ++i) users_begin_[i + 1] += users_begin_[i];
    users_.resize(users_begin_.back());
    std::vector<size_t> at(users_begin_.begin(), users_begin_.end() - 1);
    for (int32_t pc = 0; pc < count; ++pc) {
      ForEachOperand(pc, [&](int32_t of) { users_[at[static_cast<size_t>(of)]++] = pc; });
    }
  }

  template <typename Visit>
  void ForEachUser(int32_t pc, const Visit& visit) const {
    const auto i = static_cast<size_t>(pc);
    for (size_t at = users_begin_[i]; at < users_begin_[i + 1]; ++at) visit(users_[at]);
  }

  // Knuth's generalization of Dijkstra's algorithm (1977): needs become known in ascending order.
  void FindNeeds() {
    program_.need.assign(size(), GrammarProgram::kNever);
    std::vector<std::vector<int32_t>> by_need(1);
    by_need[0] = {GrammarProgram::kAcceptPc, GrammarProgram::kFinalPc};
    for (size_t need = 0; need < by_need.size(); ++need) {
      for (size_t i = 0; i < by_need[need].size(); ++i) {
        const int32_t pc = by_need[need][i];
        if (program_.need[static_cast<size_t>(pc)] != GrammarProgram::kNever) continue;
        program_.need[static_cast<size_t>(pc)] = static_cast<int32_t>(need);
        ForEachUser(pc, [&](int32_t user) {
          const auto wanted = static_cast<size_t>(NeedFromOperands(user));
          if (wanted >= static_cast<size_t>(GrammarProgram::kNever)) return;
          if (wanted >= by_need.size()) by_need.resize(wanted + 1);
          by_need[wanted].push_back(user);
        });
      }
    }
  }

  int32_t NeedFromOperands(int32_t pc) const {
    const GrammarInstruction& instruction = program_.code[static_cast<size_t>(pc)];
    const auto need = [&](int32_t of) { return program_.need[static_cast<size_t>(of)]; };
    switch (instruction.op) {
      case Op::kByte:
        return need(instruction.next);
      case Op::kSplit:
        return std::min(need(instruction.next), need(instruction.other));
      case Op::kCall: {
        const int32_t callee = need(StartOf(instruction.other));
        if (program_.IsTailCall(instruction)) return callee;
        return std::min(std::max(callee + 1, need(instruction.next)), GrammarProgram::kNever);
      }
      default:
        return GrammarProgram::kNever;
    }
  }

  void FindEmpty() {
    empty_.assign(size(), false);
    std::vector<int32_t> work = {GrammarProgram::kAcceptPc};
    empty_[GrammarProgram::kAcceptPc] = true;
    while (!work.empty()) {
      const int32_t pc = work.back();
      work.pop_back();
      ForEachUser(pc, [&](int32_t user) {
        if (empty_[static_cast<size_t>(user)] || !EmptyFromOperands(user)) return;
        empty_[static_cast<size_t>(user)] = true;
        work.push_back(user);
      });
    }
    for (auto& rule : program_.rules) rule.matches_empty = empty_[static_cast<size_t>(rule.start)];
  }

  bool EmptyFromOperands(int32_t pc) const {
    const GrammarInstruction& instruction = program_.code[static_cast<size_t>(pc)];
    const bool next = empty_[static_cast<size_t>(instruction.next)];
    if (instruction.op == Op::kSplit) return next || empty_[static_cast<size_t>(instruction.other)];
    if (instruction.op == Op::kCall) {
      return next && empty_[static_cast<size_t>(StartOf(instruction.other))];
    }
    return false;
  }

  // The rules that `rule` may call before it reads a byte.
  std::vector<int32_t> FirstCalls(int32_t rule) {
    std::vector<int32_t> calls;
    std::vector<int32_t> work = {StartOf(rule)};
    while (!work.empty()) {
      const int32_t pc = work.back();
      work.pop_back();
      if (seen_by_[static_cast<size_t>(pc)] == rule) continue;
      seen_by_[static_cast<size_t>(pc)] = rule;
      const GrammarInstruction& instruction = program_.code[static_cast<size_t>(pc)];
      if (instruction.op == Op::kSplit) {
        work.push_back(instruction.next);
        work.push_back(instruction.other);
      } else if (instruction.op == Op::kCall) {
        calls.push_back(instruction.other);
        if (program_.rules[static_cast<size_t>(instruction.other)].matches_empty) {
          work.push_back(instruction.next);
        }
      }
    }
    return calls;
  }

  // Depth-first over first calls: a rule that is met again while it is open is left-recursive.
  Status RankRules() {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    struct Visit {
      int32_t rule;
      std::vector<int32_t> calls;
      size_t next;
    };
    seen_by_.assign(size(), -1);
    std::vector<Mark> marks(program_.rules.size(), Mark::kNew);
    auto rank = static_cast<int32_t>(program_.rules.size());
    std::vector<Visit> open;
    const auto enter = [&](int32_t rule) {
      marks[static_cast<size_t>(rule)] = Mark::kOpen;
      open.push_back({rule, FirstCalls(rule), 0});
    };
    for (int32_t root = 0; root < static_cast<int32_t>(program_.rules.size()); ++root) {
      if (marks[static_cast<size_t>(root)] == Mark::kNew) enter(root);
      while (!open.empty()) {
        Visit& visit = open.back();
        if (visit.next == visit.calls.size()) {
          marks[static_cast<size_t>(visit.rule)] = Mark::kDone;
          program_.rules[static_cast<size_t>(visit.rule)].rank = --rank;
          open.pop_back();
          continue;
        }
        const int32_t callee = visit.calls[visit.next++];
        const Mark mark = marks[static_cast<size_t>(callee)];
        if (mark == Mark::kOpen) {
          return {ErrorCode::kInvalidArgument,
                  "grammar rule '" + program_.rules[static_cast<size_t>(callee)].name +
                      "' is left-recursive: it begins with itself; put what it repeats behind "
                      "something else, or use * and +"};
        }
        if (mark == Mark::kNew) enter(callee);
      }
    }
    return {};
  }

  GrammarProgram& program_;
  std::vector<size_t> users_begin_;
  std::vector<int32_t> users_;
  std::vector<bool> empty_;
  std::vector<int32_t> seen_by_;
};

}  // namespace

Status AnalyseGrammar(GrammarProgram* program) { return Analysis(program).Run(); }

}  // namespace kvasir
