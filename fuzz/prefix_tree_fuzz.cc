// Fuzzes the prefix tree: any sequence of finds, insertions, evictions and live sequences under a
// small budget keeps the tree's books, finds what it may and gives every byte back.
// Deliberately checks a hash of the tokens in a recurrent state and rows that name their token: a
// hit must be the cache of exactly the tokens asked for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/kv/prefix_tree.h"

namespace {

using namespace kvasir;

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  int Take() {
    if (bytes_.empty()) return 0;
    const int value = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return value;
  }
  bool is_empty() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
};

KvLayerSpec Rows(RetentionSpec retention) {
  return {{.kv_heads = 1,
           .key_dim = 2,
           .value_dim = 2,
           .key_codec = {KvCodec::Kind::kF32},
           .value_codec = {KvCodec::Kind::kF32}},
          retention};
}

KvCacheSpec TakeSpec(Bytes& bytes) {
  const int kinds = bytes.Take();
  KvCacheSpec spec = {{Rows(RetentionSpec::All())}};
  if (kinds & 1) spec.layers.push_back(Rows(RetentionSpec::Window(1 + bytes.Take(), kinds % 2)));
  if (kinds & 2) spec.layers.push_back(Rows(RetentionSpec::Chunk(1 + bytes.Take())));
  if (kinds & 4) spec.layers.push_back({.state_bytes = 64});
  if (!spec.Validate().ok()) spec.layers.resize(1);
  return spec;
}

uint64_t Hash(std::span<const Token> tokens) {
  uint64_t hash = 0;
  for (const Token token : tokens) {
    hash = hash * 6364136223846793005u + static_cast<uint64_t>(token) + 1;
  }
  return hash;
}

class Machine {
 public:
  explicit Machine(Bytes* bytes)
      : bytes_(*bytes),
        spec_(std::make_shared<const KvCacheSpec>(TakeSpec(*bytes))),
        pool_({.budget_bytes = size_t{64} << 10}),
        tree_(&pool_, spec_) {}

  void Run() {
    for (int i = 0; i < 100 && !bytes_.is_empty(); ++i) {
      const int choice = bytes_.Take();
      if (choice % 8 == 0) {
        Evict(static_cast<size_t>(bytes_.Take()) << 8);
      } else if (choice % 16 == 1) {
        live_.clear();
      } else {
        Request(choice);
      }
    }
    live_.clear();
    KVASIR_CHECK(tree_.nbytes_exclusive() == pool_.used_bytes());
    tree_.Clear();
    KVASIR_CHECK(pool_.used_bytes() == 0);
  }

 private:
  void Evict(size_t wanted) {
    const size_t used = pool_.used_bytes();
    const size_t held = tree_.nbytes_exclusive();
    const size_t freed = tree_.Evict(wanted);
    KVASIR_CHECK(freed >= std::min(wanted, held));
    KVASIR_CHECK(pool_.used_bytes() == used - freed);
  }

  // Runs of one token, so that few bytes make long inputs with common prefixes.
  std::vector<Token> TakeTokens() {
    std::vector<Token> tokens;
    for (int runs = bytes_.Take() % 4; runs >= 0; --runs) {
      const Token token = bytes_.Take() % 3;
      tokens.insert(tokens.end(), static_cast<size_t>(bytes_.Take()), token);
    }
    return tokens;
  }

  void Request(int choice) {
    const auto salt = static_cast<uint64_t>(choice >> 7);
    const std::vector<Token> tokens = TakeTokens();
    const int64_t limit = static_cast<int64_t>(tokens.size()) - (choice >> 4) % 4;
    auto match = tree_.Find(salt, tokens, limit);
    KVASIR_CHECK(match.ok());
    KVASIR_CHECK(match->tokens <= std::max<int64_t>(limit, 0));
    KVASIR_CHECK(match->tokens <= match->diverges_at);
    KvSequence sequence = std::move(match->sequence);
    Check(sequence, tokens);
    while (sequence.position() < static_cast<int64_t>(tokens.size())) {
      const int64_t left = static_cast<int64_t>(tokens.size()) - sequence.position();
      if (!Append(sequence, tokens, std::min<int64_t>(left, 1 + bytes_.Take()))) return;
      if (bytes_.Take() % 2 == 0) KVASIR_CHECK(tree_.Insert(salt, tokens, sequence));
    }
    Check(sequence, tokens);
    live_.push_back(std::move(sequence));
    if (live_.size() > 2) live_.erase(live_.begin());
  }

  // False if the budget is full of live sequences.
  bool Append(KvSequence& sequence, std::span<const Token> tokens, int64_t count) {
    if (!sequence.Reserve(count).ok()) {
      tree_.Evict(sequence.BytesToReserve(count));
      if (!sequence.Reserve(count).ok()) return false;
    }
    const auto first = static_cast<size_t>(sequence.position());
    const auto next = tokens.subspan(first, static_cast<size_t>(count));
    for (size_t i = 0; i < spec_->layers.size(); ++i) {
      const int layer = static_cast<int>(i);
      if (spec_->layers[i].is_recurrent()) {
        const uint64_t hash = Hash(tokens.first(first + next.size()));
        std::memcpy(sequence.MutableState(layer), &hash, sizeof(hash));
        continue;
      }
      KvRows rows;
      for (const Token token : next) {
        rows.keys.insert(rows.keys.end(), 2, static_cast<float>(token));
        rows.values.insert(rows.values.end(), 2, static_cast<float>(token) + 0.5f);
      }
      sequence.WriteRows(layer, sequence.position(), rows);
    }
    sequence.Advance(count);
    return true;
  }

  void Check(const KvSequence& sequence, std::span<const Token> tokens) {
    const Position end = sequence.position();
    for (size_t i = 0; i < spec_->layers.size(); ++i) {
      const int layer = static_cast<int>(i);
      if (spec_->layers[i].is_recurrent()) {
        uint64_t hash = 0;
        if (end > 0) std::memcpy(&hash, sequence.State(layer), sizeof(hash));
        KVASIR_CHECK(hash == Hash(tokens.first(static_cast<size_t>(end))));
        continue;
      }
      const VisibleRows visible = sequence.Visible(layer, end);
      CheckRows(sequence, layer, 0, visible.head_end, tokens);
      CheckRows(sequence, layer, visible.begin, end, tokens);
    }
  }
  void CheckRows(const KvSequence& sequence, int layer, int64_t begin, int64_t end,
                 std::span<const Token> tokens) {
    const KvRows rows = sequence.ReadRows(layer, begin, end);
    for (int64_t row = begin; row < end; ++row) {
      const auto value = static_cast<float>(tokens[static_cast<size_t>(row)]);
      const auto at = static_cast<size_t>(row - begin) * 2;
      KVASIR_CHECK(rows.keys[at] == value && rows.keys[at + 1] == value);
      KVASIR_CHECK(rows.values[at] == value + 0.5f);
    }
  }

  Bytes& bytes_;
  std::shared_ptr<const KvCacheSpec> spec_;
  KvPool pool_;
  PrefixTree tree_;
  std::vector<KvSequence> live_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes({data, size});
  Machine(&bytes).Run();
  return 0;
}
