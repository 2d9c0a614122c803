// Fuzzes JSON schemas: any JSON, as it is and relaxed, is refused with a reason, or gives a grammar
// whose texts parse.
// Deliberately no check against the schema: the tests have a validator for that.
//
// Input: a schema, then a zero byte and bytes that choose what is generated.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_automaton.h"
#include "kvasir/grammar/schema_relax.h"

namespace {

using kvasir::GrammarAutomaton;
using kvasir::Json;

// Follows the choices as far as they are allowed; a text that may end must be JSON.
void Exercise(const std::shared_ptr<const kvasir::Grammar>& grammar, std::string_view choices) {
  GrammarAutomaton automaton(grammar);
  GrammarAutomaton::State state = automaton.start();
  std::string text;
  for (size_t i = 0; i < choices.size() && i < 200; ++i) {
    int tries = 0;
    auto byte = static_cast<uint8_t>(choices[i]);
    while (automaton.Next(state, byte) == GrammarAutomaton::kDead && ++tries < 256) ++byte;
    if (automaton.CanEnd(state)) KVASIR_CHECK(Json::Parse(text).ok());
    if (tries == 256) {
      KVASIR_CHECK(automaton.CanEnd(state));
      return;
    }
    state = automaton.Next(state, byte);
    text += static_cast<char>(byte);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto schema = Json::Parse(input.substr(0, zero));
  if (!schema.ok()) return 0;
  const std::string_view choices = input.substr(zero == input.npos ? 0 : zero + 1);
  for (const Json& one : {*schema, kvasir::RelaxedSchema(*schema)}) {
    const auto grammar = kvasir::Grammar::FromJsonSchema(one);
    if (grammar.ok()) {
      Exercise(*grammar, choices);
    } else {
      KVASIR_CHECK(!grammar.error().message.empty());
    }
  }
  return 0;
}
