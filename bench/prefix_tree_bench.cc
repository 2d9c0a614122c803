// What finding, publishing and evicting cached prefixes costs, in the shape of Qwen3-0.6B (28
// layers, 8 KV heads of 128): many conversations behind one system prompt, then one long text.
// Microseconds, the median of many. Deliberately without rows: no operation reads one, and blocks
// that nobody writes take no memory.
//   prefix_tree_bench [tokens of the long text] [window; 0: every layer sees all] [conversations]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "bench/bench_util.h"
#include "kvasir/base/check.h"
#include "kvasir/kv/prefix_tree.h"

namespace kvasir {
namespace {

constexpr int kLayers = 28;
constexpr int kRepeats = 51;
constexpr int64_t kSystemTokens = 2048;
constexpr int64_t kTurnTokens = 512;

void Report(const char* operation, double microseconds) {
  std::printf("| %s | %.1f |\n", operation, microseconds);
}

std::vector<Token> Tokens(int64_t first, int64_t count) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>(first + static_cast<int64_t>(i));
  }
  return tokens;
}

// What a request would compute; publishes every 1024 tokens, as a prefill with restore points.
void Serve(PrefixTree* tree, const std::vector<Token>& tokens) {
  KvSequence sequence = Must(tree->Find(0, tokens, static_cast<int64_t>(tokens.size()))).sequence;
  while (sequence.position() < static_cast<int64_t>(tokens.size())) {
    const int64_t left = static_cast<int64_t>(tokens.size()) - sequence.position();
    const int64_t chunk = std::min<int64_t>(left, 1024);
    KVASIR_CHECK(sequence.Reserve(chunk).ok());
    sequence.Advance(chunk);
    KVASIR_CHECK(tree->Insert(0, tokens, sequence));
  }
}

std::vector<Token> Conversation(int number) {
  std::vector<Token> tokens = Tokens(0, kSystemTokens);
  const std::vector<Token> turn = Tokens(1000000 + number * kTurnTokens, kTurnTokens);
  tokens.insert(tokens.end(), turn.begin(), turn.end());
  return tokens;
}

void Run(int64_t long_tokens, int64_t window, int conversations) {
  KvLayerSpec layer;
  layer.layout = {.kv_heads = 8, .key_dim = 128, .value_dim = 128};
  auto layers = KvCacheSpec::Uniform(kLayers, layer);
  for (size_t i = 0; window > 0 && i < layers.layers.size(); ++i) {
    if (i % 6 != 5) layers.layers[i].retention = RetentionSpec::Window(window);
  }
  const auto spec = std::make_shared<const KvCacheSpec>(std::move(layers));
  const int64_t turns = conversations * kTurnTokens;
  KvPool pool({.budget_bytes = 2 * KvCacheSpec::Uniform(kLayers, layer)
                                       .BytesAt(long_tokens + kSystemTokens + 2 * turns)});
  PrefixTree tree(&pool, spec);
  for (int i = 0; i < conversations; ++i) Serve(&tree, Conversation(i));
  const std::vector<Token> text = Tokens(50000000, long_tokens);
  Serve(&tree, text);

  std::printf("%lld tokens in one text, %d conversations of %lld; window %lld\n\n",
              static_cast<long long>(long_tokens), conversations,
              static_cast<long long>(kSystemTokens + kTurnTokens), static_cast<long long>(window));
  std::printf("| operation | microseconds |\n|---|---|\n");
  const auto nothing = [](int) {};
  const auto find = [&](const std::vector<Token>& tokens) {
    const auto match = Must(tree.Find(0, tokens, static_cast<int64_t>(tokens.size())));
    KVASIR_CHECK(match.tokens > 0);
  };
  Report("find a conversation",
         MedianMicroseconds(kRepeats, nothing, [&](int i) { find(Conversation(i)); }));
  Report("find the text", MedianMicroseconds(kRepeats, nothing, [&](int) { find(text); }));
  Report("miss", MedianMicroseconds(kRepeats, nothing, [&](int) {
           KVASIR_CHECK(Must(tree.Find(1, text, long_tokens)).tokens == 0);
         }));
  KvSequence sequence = Must(tree.Find(0, text, long_tokens)).sequence;
  std::vector<Token> longer = text;
  Report("publish one block more of the text",
         MedianMicroseconds(
             kRepeats,
             [&](int i) {
               longer.resize(longer.size() + 64, i);
               KVASIR_CHECK(sequence.Reserve(64).ok());
               sequence.Advance(64);
             },
             [&](int) { KVASIR_CHECK(tree.Insert(0, longer, sequence)); }));
  Report("evict 1 MiB",
         MedianMicroseconds(kRepeats, nothing, [&](int) { tree.Evict(size_t{1} << 20); }));
  Report("statistics", MedianMicroseconds(kRepeats, nothing, [&](int) { tree.Stats(); }));
  const PrefixTreeStats stats = tree.Stats();
  std::printf("\n%lld nodes, %lld tokens, copied %llu bytes\n", static_cast<long long>(stats.nodes),
              static_cast<long long>(stats.tokens),
              static_cast<unsigned long long>(pool.Stats().copied_bytes));
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 32768;
  const int64_t window = argc > 2 ? std::atoll(argv[2]) : 0;
  const int conversations = argc > 3 ? std::atoi(argv[3]) : 64;
  if (tokens < 64 || window < 0 || conversations < kvasir::kRepeats) {
    std::fprintf(stderr, "usage: prefix_tree_bench [tokens >= 64] [window] [conversations >= %d]\n",
                 kvasir::kRepeats);
    return 2;
  }
  kvasir::Run(tokens, window, conversations);
  return 0;
}
