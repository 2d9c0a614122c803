// What the tests of this folder share: rows whose content says which token and layer they are of.
// Deliberately the naive truth: a vector of tokens per sequence, rows as a function of a token.
#ifndef KVASIR_KV_KV_TEST_UTIL_H_
#define KVASIR_KV_KV_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir::kv_testing {

inline constexpr size_t kAmpleBytes = size_t{1} << 30;

inline KvCodec F32() { return {KvCodec::Kind::kF32}; }
inline KvCodec F16() { return {KvCodec::Kind::kF16}; }
inline KvCodec Bf16() { return {KvCodec::Kind::kBf16}; }

inline KvLayerSpec Layer(RetentionSpec retention, KvCodec keys = F32(), KvCodec values = F32()) {
  return {{.kv_heads = 2, .key_dim = 4, .value_dim = 3, .key_codec = keys, .value_codec = values},
          retention};
}

inline KvLayerSpec Recurrent(size_t state_bytes) {
  KvLayerSpec layer;
  layer.state_bytes = state_bytes;
  return layer;
}

inline std::shared_ptr<const KvCacheSpec> Spec(std::vector<KvLayerSpec> layers) {
  return std::make_shared<const KvCacheSpec>(KvCacheSpec{std::move(layers)});
}

inline KvPoolOptions Budget(size_t budget_bytes) {
  KvPoolOptions options;
  options.budget_bytes = budget_bytes;
  return options;
}

// An integer in [-128, 128], which every codec stores exactly.
inline float Element(Token token, int layer, int plane, int index) {
  uint64_t x = static_cast<uint64_t>(token) * 0x9E3779B97F4A7C15u +
               static_cast<uint64_t>(layer) * 977 + static_cast<uint64_t>(plane) * 131 +
               static_cast<uint64_t>(index);
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 32;
  return static_cast<float>(static_cast<int>(x % 257) - 128);
}

// The rows that `tokens` give in `layer`.
inline KvRows RowsOf(const KvLayout& layout, int layer, std::span<const Token> tokens) {
  KvRows rows;
  for (const Token token : tokens) {
    for (int i = 0; i < layout.kv_heads * layout.key_dim; ++i) {
      rows.keys.push_back(Element(token, layer, 0, i));
    }
    for (int i = 0; i < layout.kv_heads * layout.value_dim; ++i) {
      rows.values.push_back(Element(token, layer, 1, i));
    }
  }
  return rows;
}

// The first 8 bytes of a recurrent layer's state: a hash of all tokens so far.
inline uint64_t NextState(uint64_t state, int layer, std::span<const Token> tokens) {
  for (const Token token : tokens) {
    state = state * 6364136223846793005u + static_cast<uint64_t>(token) * 31 +
            static_cast<uint64_t>(layer) + 1;
  }
  return state;
}
inline uint64_t LoadState(const std::byte* state) {
  uint64_t value = 0;
  if (state != nullptr) std::memcpy(&value, state, sizeof(value));
  return value;
}

// Writes rows and states of already reserved tokens and advances.
inline void WriteReserved(KvSequence& sequence, std::span<const Token> tokens) {
  const auto& layers = sequence.spec().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].is_recurrent() && !tokens.empty()) {
      std::byte* state = sequence.MutableState(static_cast<int>(i));
      uint64_t next = LoadState(state);
      size_t done = 0;
      for (const KvSequence::InnerState& inner : sequence.InnerStates(static_cast<int>(i))) {
        const auto until = static_cast<size_t>(inner.position - sequence.position());
        if (until >= tokens.size()) break;
        next = NextState(next, static_cast<int>(i), tokens.subspan(done, until - done));
        done = until;
        std::memcpy(inner.data, &next, sizeof(next));
      }
      next = NextState(next, static_cast<int>(i), tokens.subspan(done));
      std::memcpy(state, &next, sizeof(next));
    }
    if (!layers[i].owns_rows()) continue;
    const int layer = static_cast<int>(i);
    sequence.WriteRows(layer, sequence.RowOf(layer, sequence.position()),
                       RowsOf(layers[i].layout, layer, tokens));
  }
  sequence.Advance(static_cast<int64_t>(tokens.size()));
}

// One step as an engine does it.
inline Status Append(KvSequence& sequence, std::span<const Token> tokens) {
  KVASIR_TRY_OK(sequence.Reserve(static_cast<int64_t>(tokens.size())));
  WriteReserved(sequence, tokens);
  return {};
}

// `count` tokens from `first` on: first, first + 1, ...
inline std::vector<Token> Tokens(Token first, int64_t count) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<Token>(i));
  return tokens;
}

// Every row that a layer says it holds, and at least those the next token sees, are those of
// `tokens`.
inline void ExpectHolds(const KvSequence& sequence, const std::vector<Token>& tokens) {
  const auto position = static_cast<Position>(tokens.size());
  ASSERT_EQ(sequence.position(), position);
  const auto& layers = sequence.spec().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const int layer = static_cast<int>(i);
    const int owner = layers[i].owns_rows() ? layer : layers[i].shares_layer;
    const KvBlocksView blocks = sequence.Blocks(layer);
    const VisibleRows visible = sequence.Visible(layer, position);
    ASSERT_LE(blocks.first_row(), visible.begin) << "layer " << layer;
    ASSERT_GE(blocks.end_row(), position) << "layer " << layer;
    ASSERT_EQ(visible.end, position + 1);
    const Position first = std::min(blocks.first_row(), position);
    const KvRows expected =
        RowsOf(layers[i].layout, owner, std::span(tokens).subspan(static_cast<size_t>(first)));
    const KvRows actual = sequence.ReadRows(layer, first, position);
    ASSERT_EQ(actual.keys, expected.keys) << "layer " << layer;
    ASSERT_EQ(actual.values, expected.values) << "layer " << layer;
  }
}

// The value, or a failed test that prints the error.
template <typename T>
T Must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return std::move(result).value();
}

inline void MustOk(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

}  // namespace kvasir::kv_testing

#endif  // KVASIR_KV_KV_TEST_UTIL_H_
