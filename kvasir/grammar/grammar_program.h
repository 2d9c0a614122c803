// GrammarProgram: a grammar as instructions over bytes, with the facts that running it needs.
// Deliberately plain data: GrammarCompiler writes it, GrammarAutomaton runs it.
#ifndef KVASIR_GRAMMAR_GRAMMAR_PROGRAM_H_
#define KVASIR_GRAMMAR_GRAMMAR_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvasir {

struct GrammarInstruction {
  enum class Op : uint8_t {
    kAccept,  // the end of a rule
    kFinal,   // the end of the text
    kFail,
    kByte,   // a byte in [low, high], then `next`
    kSplit,  // `next` or `other`
    kCall,   // rule `other`, then `next`
  };
  Op op = Op::kFail;
  uint8_t low = 0;
  uint8_t high = 0;
  int32_t next = 0;
  int32_t other = 0;
};

struct GrammarProgram {
  static constexpr int32_t kAcceptPc = 0;
  static constexpr int32_t kFinalPc = 1;
  // A need no text can satisfy.
  static constexpr int32_t kNever = 1 << 20;

  struct Rule {
    std::string name;
    int32_t start = 0;
    bool matches_empty = false;
    // A rule that another may call before any byte is read has the greater rank.
    int32_t rank = 0;
  };

  std::vector<GrammarInstruction> code;
  std::vector<Rule> rules;
  int32_t root = 0;
  // Per instruction: how many nested calls the shortest way to the rule's end needs, or kNever.
  std::vector<int32_t> need;
  // Per instruction: what it is a copy of, below origin_count. Copies of a counted repetition's
  // part have the same origins; an instruction that there is once has one of its own.
  std::vector<int32_t> origin;
  std::vector<bool> is_copied;  // per instruction: others have its origin
  int32_t origin_count = 0;
  // Bytes that every instruction treats alike share a class.
  std::array<uint8_t, 256> class_of{};
  int32_t class_count = 0;

  // A call at the very end of a rule needs no way back.
  bool IsTailCall(const GrammarInstruction& call) const { return call.next == kAcceptPc; }
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_PROGRAM_H_
