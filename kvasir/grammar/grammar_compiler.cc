#include "kvasir/grammar/grammar_compiler.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kvasir/grammar/grammar_analysis.h"
#include "kvasir/grammar/utf8_ranges.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;
using Op = GrammarInstruction::Op;

constexpr size_t kMaxInstructions = size_t{1} << 20;
// Expressions without instructions cost time too: `("" ""){1000000}`.
constexpr int64_t kMaxVisits = int64_t{1} << 22;
// Counts up to this many are written out; above, copies move into a rule that is called, so that a
// count of n costs 2 sqrt(n) copies.
constexpr int kMaxCopies = 256;

class Compiler {
 public:
  explicit Compiler(const GrammarSyntax& syntax) : syntax_(syntax) {
    Add({.op = Op::kAccept});
    Add({.op = Op::kFinal});
    program_.rules.resize(syntax.rule_count());
  }

  Result<GrammarProgram> Compile(GrammarSyntax::Rule root) {
    for (size_t i = 0; i < syntax_.rule_count(); ++i) {
      const auto rule = static_cast<GrammarSyntax::Rule>(i);
      if (!syntax_.IsDefined(rule)) {
        if (rule == root) {
          return Error{ErrorCode::kInvalidArgument,
                       "the grammar has no rule '" + syntax_.name(rule) + "' to begin with"};
        }
        return Error{ErrorCode::kInvalidArgument,
                     "grammar rule '" + syntax_.name(rule) + "' is used but not defined"};
      }
      program_.rules[i].name = syntax_.name(rule);
      program_.rules[i].start = Emit(syntax_.body(rule), GrammarProgram::kAcceptPc);
    }
    // Compiling a run of copies may ask for further runs.
    for (size_t i = 0; i < runs_.size() && !too_large_; ++i) {
      const Run run = runs_[i];
      program_.rules[static_cast<size_t>(run.rule)].start =
          EmitCopies(run.part, run.copies, GrammarProgram::kAcceptPc);
    }
    if (too_large_ || syntax_.too_large()) {
      return Error{ErrorCode::kResourceExhausted,
                   "the grammar is too large; use smaller repetition counts or fewer rules"};
    }
    program_.root = root;
    FindByteClasses();
    FindCopies();
    KVASIR_TRY_OK(AnalyseGrammar(&program_));
    return std::move(program_);
  }

 private:
  // A rule of `copies` times `part`.
  struct Run {
    Expr part;
    int copies;
    int32_t rule;
  };

  int32_t Add(const GrammarInstruction& instruction) {
    if (program_.code.size() >= kMaxInstructions) {
      too_large_ = true;
      return GrammarProgram::kAcceptPc;
    }
    program_.code.push_back(instruction);
    program_.origin.push_back(next_origin_++);
    return static_cast<int32_t>(program_.code.size()) - 1;
  }
  int32_t AddSplit(int32_t a, int32_t b) { return Add({.op = Op::kSplit, .next = a, .other = b}); }
  int32_t AddCall(int32_t rule, int32_t next) {
    return Add({.op = Op::kCall, .next = next, .other = rule});
  }

  // The instruction at which `expr` begins when `next` follows it.
  int32_t Emit(Expr expr, int32_t next) {
    if (++visits_ > kMaxVisits) too_large_ = true;
    if (too_large_) return next;
    const GrammarSyntax::Node& node = syntax_.node(expr);
    switch (node.kind) {
      case GrammarSyntax::Kind::kLiteral:
        for (size_t i = node.text.size(); i-- > 0;) {
          const auto byte = static_cast<uint8_t>(node.text[i]);
          next = Add({.op = Op::kByte, .low = byte, .high = byte, .next = next});
        }
        return next;
      case GrammarSyntax::Kind::kCharSet:
        return EmitChars(node.set, next);
      case GrammarSyntax::Kind::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) next = Emit(node.parts[i], next);
        return next;
      case GrammarSyntax::Kind::kAlternatives:
        return EmitAlternatives(node.parts, next);
      case GrammarSyntax::Kind::kRepeat:
        return EmitRepeat(node, next);
      case GrammarSyntax::Kind::kRule:
        return AddCall(node.min, next);
    }
    return next;
  }

  int32_t EmitAlternatives(const std::vector<Expr>& parts, int32_t next) {
    if (parts.empty()) return Add({.op = Op::kFail});
    int32_t start = Emit(parts.back(), next);
    for (size_t i = parts.size() - 1; i-- > 0;) start = AddSplit(Emit(parts[i], next), start);
    return start;
  }

  // Sequences share their ends: all lead bytes of one length go on to the same instructions.
  int32_t EmitChars(const CharSet& set, int32_t next) {
    std::map<std::tuple<uint8_t, uint8_t, int32_t>, int32_t> known;
    std::vector<int32_t> starts;
    for (const std::vector<ByteRange>& sequence : Utf8Ranges(set)) {
      int32_t pc = next;
      for (size_t i = sequence.size(); i-- > 0;) {
        const auto [entry, added] = known.try_emplace({sequence[i].low, sequence[i].high, pc}, 0);
        if (added) {
          entry->second =
              Add({.op = Op::kByte, .low = sequence[i].low, .high = sequence[i].high, .next = pc});
        }
        pc = entry->second;
      }
      starts.push_back(pc);
    }
    if (starts.empty()) return Add({.op = Op::kFail});
    int32_t start = starts.back();
    for (size_t i = starts.size() - 1; i-- > 0;) start = AddSplit(starts[i], start);
    return start;
  }

  int32_t EmitRepeat(const GrammarSyntax::Node& node, int32_t next) {
    const Expr part = node.parts[0];
    if (node.max == GrammarSyntax::kUnbounded) {
      const int32_t loop = AddSplit(0, next);
      const int32_t body = Emit(part, loop);
      if (!too_large_) program_.code[static_cast<size_t>(loop)].next = body;
      return EmitExactly(part, node.min, loop);
    }
    return EmitExactly(part, node.min, EmitUpTo(part, node.max - node.min, next));
  }

  int32_t EmitCopies(Expr part, int copies, int32_t next) {
    const int32_t origin = next_origin_;
    for (int i = 0; i < copies && !too_large_; ++i) {
      next_origin_ = origin;
      next = Emit(part, next);
    }
    return next;
  }

  int32_t EmitExactly(Expr part, int count, int32_t next) {
    if (count <= kMaxCopies) return EmitCopies(part, count, next);
    const int run = RunLength(count);
    const int32_t rule = RunRule(part, run);
    next = EmitCopies(part, count % run, next);
    const int32_t origin = next_origin_;
    for (int i = 0; i < count / run && !too_large_; ++i) {
      next_origin_ = origin;
      next = AddCall(rule, next);
    }
    return next;
  }

  int32_t EmitUpTo(Expr part, int count, int32_t next) {
    int32_t start = next;
    if (count <= kMaxCopies) {
      const int32_t origin = next_origin_;
      for (int i = 0; i < count && !too_large_; ++i) {
        next_origin_ = origin;
        start = AddSplit(Emit(part, start), next);
      }
      return start;
    }
    // count = q run + r: up to q whole runs, then fewer than a run; only after all q at most r.
    const int run = RunLength(count);
    const int32_t rule = RunRule(part, run);
    const int32_t rest = EmitUpTo(part, run - 1, next);
    start = EmitUpTo(part, count % run, next);
    const int32_t origin = next_origin_;
    for (int i = 0; i < count / run && !too_large_; ++i) {
      next_origin_ = origin;
      start = AddSplit(AddCall(rule, start), rest);
    }
    return start;
  }

  // Between sqrt(count) and what may be written out.
  static int RunLength(int count) {
    int run = 16;
    while (run * run < count) run *= 2;
    return run;
  }

  int32_t RunRule(Expr part, int copies) {
    const auto rule = static_cast<int32_t>(program_.rules.size());
    program_.rules.push_back({.name = "repetition"});
    runs_.push_back({part, copies, rule});
    return rule;
  }

  void FindByteClasses() {
    std::array<bool, 257> begins{};
    for (const GrammarInstruction& instruction : program_.code) {
      if (instruction.op != Op::kByte) continue;
      begins[instruction.low] = true;
      begins[size_t{instruction.high} + 1] = true;
    }
    int32_t last = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++last;
      program_.class_of[byte] = static_cast<uint8_t>(last);
    }
    program_.class_count = last + 1;
  }

  void FindCopies() {
    program_.origin_count = next_origin_;
    std::vector<int32_t> instructions(static_cast<size_t>(next_origin_), 0);
    for (const int32_t origin : program_.origin) ++instructions[static_cast<size_t>(origin)];
    for (const int32_t origin : program_.origin) {
      program_.is_copied.push_back(instructions[static_cast<size_t>(origin)] > 1);
    }
  }

  const GrammarSyntax& syntax_;
  GrammarProgram program_;
  int32_t next_origin_ = 0;  // set back for each copy of a repetition's part
  std::vector<Run> runs_;
  int64_t visits_ = 0;
  bool too_large_ = false;
};

}  // namespace

Result<GrammarProgram> CompileGrammar(const GrammarSyntax& syntax, GrammarSyntax::Rule root) {
  return Compiler(syntax).Compile(root);
}

}  // namespace kvasir
