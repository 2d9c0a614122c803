// Prints what token masks cost, in milliseconds of CPU time: of all masks along random walks, and
// of those among them that were not remembered from an earlier token or walk. Deliberately not a
// test: figures depend on the machine.
//
// Usage: grammar_bench [tokenizer.json]. Without a tokenizer a vocabulary of 151,936 made-up words
// stands in; its tree is wider than a real one's.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_masks.h"
#include "kvasir/grammar/grammar_matcher.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace {

using kvasir::GrammarVocabulary;
using kvasir::Token;

constexpr size_t kVocabulary = 151'936;  // Qwen3's
constexpr int kWalks = 20;
constexpr int kMaxTokens = 200;

double CpuMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Words of 1 to 12 letters, most with a blank before them, and every single byte.
std::vector<std::string> MadeUpWords() {
  std::vector<std::string> words;
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  for (uint64_t i = 0; words.size() < kVocabulary; ++i) {
    const auto draw = kvasir::Philox4x32(7, i);
    std::string word(draw[0] % 3 > 0 ? 1 : 0, ' ');
    for (uint32_t at = 0; at <= draw[1] % 12; ++at) {
      word += static_cast<char>('a' + kvasir::Philox4x32(8, i, at)[0] % 26);
    }
    words.push_back(word);
  }
  return words;
}

std::shared_ptr<const GrammarVocabulary> ReadVocabulary(const char* path) {
  const double begin = CpuMilliseconds();
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  if (path == nullptr) {
    const Token end = 0;
    vocabulary = std::make_shared<const GrammarVocabulary>(MadeUpWords(), std::span(&end, 1));
  } else {
    const auto tokenizer = kvasir::Tokenizer::FromFile(path);
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
      return nullptr;
    }
    const Token end = (*tokenizer)->TokenToId("<|im_end|>").value_or(0);
    vocabulary = std::make_shared<const GrammarVocabulary>(
        GrammarVocabulary::FromTokenizer(**tokenizer, std::span(&end, 1)));
  }
  std::printf(
      "vocabulary of %zu tokens read in %.0f ms: %zu tree nodes of plain text, %zu others\n",
      vocabulary->size(), CpuMilliseconds() - begin, vocabulary->plain_trie().node_count(),
      vocabulary->other_trie().node_count());
  return vocabulary;
}

// A token the mask allows; now and then one that says little, so that texts come to an end.
Token Choose(const kvasir::TokenMask& mask, uint64_t seed, uint64_t step) {
  const auto size = static_cast<double>(mask.vocab_size());
  for (uint64_t attempt = 0; attempt < 64; ++attempt) {
    const double uniform = kvasir::UniformDouble(seed, step, attempt);
    const double range = attempt % 2 == 0 && step % 3 == 0 ? 256 : size;
    const auto token = static_cast<Token>(uniform * range);
    if (mask.Test(token)) return token;
  }
  Token token = 0;
  while (!mask.Test(token)) ++token;
  return token;
}

struct Times {
  std::vector<double> masks_ms;
  std::vector<double> new_masks_ms;
  std::vector<double> accepts_ms;
};

Times Walk(kvasir::GrammarMasks* masks) {
  Times times;
  for (uint64_t seed = 0; seed < kWalks; ++seed) {
    kvasir::GrammarMatcher matcher(masks);
    for (uint64_t step = 0; step < kMaxTokens && !matcher.ended(); ++step) {
      const size_t known = masks->mask_count();
      const double begin = CpuMilliseconds();
      const kvasir::TokenMask& mask = matcher.Mask();
      times.masks_ms.push_back(CpuMilliseconds() - begin);
      if (masks->mask_count() != known) times.new_masks_ms.push_back(times.masks_ms.back());
      if (mask.None()) break;
      const Token token = Choose(mask, seed, step);
      const double accept_begin = CpuMilliseconds();
      matcher.Accept(token);
      times.accepts_ms.push_back(CpuMilliseconds() - accept_begin);
    }
  }
  return times;
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

struct Case {
  const char* name;
  const char* schema;
};

constexpr Case kCases[] = {
    {"any JSON", "{}"},
    {"person", R"({"type": "object", "properties": {"name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "age", "email", "tags"], "additionalProperties": false})"},
    {"strings with length", R"({"type": "array", "minItems": 3, "items":
        {"type": "string", "minLength": 5, "maxLength": 200}})"},
    {"map", R"({"type": "object", "properties": {"a": {"type": "integer"}, "abc":
        {"type": "integer"}}, "additionalProperties": {"type": "string"}})"},
    {"pattern", R"({"type": "array", "items": {"type": "string",
        "pattern": "^[A-Za-z ]+-[a-z0-9]{3,40}$"}})"},
    {"recursive", R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
        {"label": {"type": "string"}, "children": {"type": "array", "minItems": 1, "items":
        {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "number"}]}}},
        "required": ["label", "children"]}}})"},
    {"enumeration", R"({"type": "array", "minItems": 10, "items": {"enum": ["red", "green", "blue",
        "yellow", "cyan", "magenta", "black", "white", "orange", "purple"]}})"},
};

}  // namespace

int main(int argc, char** argv) {
  const auto vocabulary = ReadVocabulary(argc > 1 ? argv[1] : nullptr);
  if (vocabulary == nullptr) return 1;
  std::printf("%-20s %8s %8s %8s %8s %8s | %8s %8s %8s %8s\n", "", "compile", "masks", "p50", "p99",
              "accept", "new", "p50", "p99", "max");
  for (const Case& test : kCases) {
    const auto schema = kvasir::Json::Parse(test.schema);
    const double begin = CpuMilliseconds();
    const auto grammar = kvasir::Grammar::FromJsonSchema(*schema);
    if (!grammar.ok()) {
      std::fprintf(stderr, "%s: %s\n", test.name, grammar.error().message.c_str());
      return 1;
    }
    const double compile_ms = CpuMilliseconds() - begin;
    kvasir::GrammarMasks masks(*grammar, vocabulary);
    const Times times = Walk(&masks);
    std::printf("%-20s %8.3f %8zu %8.4f %8.3f %8.4f | %8zu %8.3f %8.3f %8.3f\n", test.name,
                compile_ms, times.masks_ms.size(), Quantile(times.masks_ms, 0.5),
                Quantile(times.masks_ms, 0.99), Quantile(times.accepts_ms, 0.5),
                times.new_masks_ms.size(), Quantile(times.new_masks_ms, 0.5),
                Quantile(times.new_masks_ms, 0.99), Quantile(times.new_masks_ms, 1.0));
  }
  return 0;
}
