// Promise 1, on whole models: the bits of a token's logits depend on its own sequence only.
// Every test compares bits, none has a tolerance.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>

#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/speculation.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

using Logits = std::vector<float>;

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Case {
  const char* folder;
  const char* weights;  // WeightFormat name, or "" as stored
  const char* codec;
};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.folder) + "_" +
         (*info.param.weights == '\0' ? "stored" : info.param.weights) + "_" + info.param.codec;
}

class InvarianceTest : public testing::TestWithParam<Case> {
 protected:
  static TinyModelOptions Options() {
    TinyModelOptions options;
    options.folder = GetParam().folder;
    if (*GetParam().weights != '\0') {
      options.weights = ValueOrDie(WeightFormatFromName(GetParam().weights));
    }
    options.codec = ValueOrDie(KvCodec::FromName(GetParam().codec));
    return options;
  }
  static std::vector<Token> Prompt(TinyModel& tiny, int64_t count, uint64_t seed = 1) {
    return RandomTokens(count, tiny.model().vocab_size(), seed);
  }
  static std::span<const float> Row(const TinyModel& tiny, const Logits& logits, int64_t row) {
    const size_t vocab = static_cast<size_t>(tiny.model().vocab_size());
    return std::span(logits).subspan(static_cast<size_t>(row) * vocab, vocab);
  }
};

TEST_P(InvarianceTest, WholeChunkedAndTokenByToken) {
  TinyModel tiny(Options());
  // Crosses the windows, several blocks and the first partition border (1,024 rows).
  const auto prompt = Prompt(tiny, 1100);
  KvSequence whole = tiny.NewSequence();
  const Logits wanted = tiny.Feed(whole, prompt);
  for (const std::vector<int64_t>& chunks :
       {std::vector<int64_t>{1}, {64}, {7, 1, 121, 1, 63, 512}, {1023, 2, 1}}) {
    KvSequence sequence = tiny.NewSequence();
    EXPECT_TRUE(SameBits(tiny.Feed(sequence, prompt, chunks), wanted)) << "chunks " << chunks[0];
  }
}

TEST_P(InvarianceTest, ThreadsAndInstructionSets) {
  TinyModelOptions options = Options();
  TinyModel reference(options);
  const auto prompt = Prompt(reference, 1090);
  KvSequence sequence = reference.NewSequence();
  const Logits wanted = reference.Feed(sequence, prompt, {1050, 1});
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : {1, 2, 5}) {
      // The scalar oracle is slow and has no threads of its own: once is enough.
      if (isa == Isa::kScalar && threads != 2) continue;
      options.isa = isa;
      options.threads = threads;
      TinyModel tiny(options);
      KvSequence other = tiny.NewSequence();
      EXPECT_TRUE(SameBits(tiny.Feed(other, prompt, {1050, 1}), wanted))
          << IsaName(isa) << ", " << threads << " threads";
    }
  }
}

TEST_P(InvarianceTest, AnyBatchEqualsAlone) {
  TinyModel tiny(Options());
  constexpr int kSequences = 5;
  std::vector<std::vector<Token>> prompts;
  std::vector<Logits> alone;
  for (int i = 0; i < kSequences; ++i) {
    prompts.push_back(Prompt(tiny, 40 + 37 * i, static_cast<uint64_t>(i)));
    KvSequence sequence = tiny.NewSequence();
    alone.push_back(tiny.Feed(sequence, prompts.back()));
  }
  // Every step mixes decode, prefill chunks and absent sequences at random.
  std::mt19937 random(7);
  std::vector<KvSequence> sequences;
  for (int i = 0; i < kSequences; ++i) sequences.push_back(tiny.NewSequence());
  std::vector<Logits> batched(kSequences);
  for (;;) {
    std::vector<SequenceRun> runs;
    std::vector<int> members;
    bool is_done = true;
    for (int i = 0; i < kSequences; ++i) {
      const int64_t rest = static_cast<int64_t>(prompts[i].size()) - sequences[i].position();
      if (rest == 0) continue;
      is_done = false;
      if (random() % 3 == 0) continue;
      const int64_t count = std::min<int64_t>(rest, random() % 2 == 0 ? 1 : 1 + random() % 40);
      runs.push_back(
          {&sequences[i],
           std::span(prompts[i])
               .subspan(static_cast<size_t>(sequences[i].position()), static_cast<size_t>(count)),
           count});
      members.push_back(i);
    }
    if (is_done) break;
    if (runs.empty()) continue;
    std::vector<int64_t> counts;
    for (const SequenceRun& run : runs) counts.push_back(run.logits_rows);
    const ConstFloatRows rows = ValueOrDie(tiny.model().Forward(runs, tiny.workspace()));
    int64_t row = 0;
    for (size_t m = 0; m < members.size(); ++m) {
      for (int64_t i = 0; i < counts[m]; ++i, ++row) {
        Logits& out = batched[static_cast<size_t>(members[m])];
        out.insert(out.end(), rows.row(row), rows.row(row) + rows.cols);
      }
    }
  }
  for (size_t i = 0; i < kSequences; ++i) EXPECT_TRUE(SameBits(batched[i], alone[i])) << i;
}

// The last layers compute no rows that nobody asks for: neither those that are, nor what follows
// them, may show it.
TEST_P(InvarianceTest, RowsThatNobodyWantsLeaveNoTrace) {
  TinyModel reference(Options());
  TinyModelOptions options = Options();
  options.threads = 3;
  TinyModel tiny(options);
  constexpr size_t kSequences = 3;
  std::vector<std::vector<Token>> prompts;
  std::vector<Logits> alone;
  std::vector<KvSequence> sequences;
  for (size_t i = 0; i < kSequences; ++i) {
    prompts.push_back(Prompt(tiny, 200 + 30 * static_cast<int64_t>(i), i));
    KvSequence sequence = reference.NewSequence();
    alone.push_back(reference.Feed(sequence, prompts.back()));
    sequences.push_back(tiny.NewSequence());
  }
  std::mt19937 random(11);
  size_t compared = 0;
  for (;;) {
    std::vector<SequenceRun> runs;
    std::vector<std::pair<size_t, int64_t>> rows;  // of the logits: sequence and position
    for (size_t i = 0; i < kSequences; ++i) {
      const Position begin = sequences[i].position();
      const int64_t rest = static_cast<int64_t>(prompts[i].size()) - begin;
      if (rest == 0) continue;
      const int64_t count = std::min<int64_t>(rest, 1 + random() % 50);
      const int64_t logits = std::min<int64_t>(count, random() % 3);
      const int64_t hidden = std::min<int64_t>(count, random() % 2 * (random() % 5));
      runs.push_back(
          {&sequences[i],
           std::span(prompts[i]).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
           logits, hidden});
      for (int64_t row = logits; row > 0; --row) rows.push_back({i, begin + count - row});
    }
    if (runs.empty()) break;
    const ConstFloatRows logits = ValueOrDie(tiny.model().Forward(runs, tiny.workspace()));
    ASSERT_EQ(logits.rows, static_cast<int64_t>(rows.size()));
    for (size_t row = 0; row < rows.size(); ++row, ++compared) {
      const auto [sequence, position] = rows[row];
      const std::span got(logits.row(static_cast<int64_t>(row)), static_cast<size_t>(logits.cols));
      EXPECT_TRUE(SameBits(got, Row(tiny, alone[sequence], position)))
          << "sequence " << sequence << ", position " << position;
    }
  }
  EXPECT_GT(compared, 10u);
}

TEST_P(InvarianceTest, RowsThatNobodyWantsCostLess) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 40);
  const bool ends_with_state = tiny.NewSequence().spec().layers.back().is_recurrent();
  if (ends_with_state) GTEST_SKIP() << "the last layer's state needs all of the layer";
  const auto bytes_read = [&](int64_t hidden_rows) {
    KvSequence sequence = tiny.NewSequence();
    const SequenceRun run = {&sequence, prompt, 0, hidden_rows};
    const uint64_t before = tiny.backend().weight_bytes_read();
    ValueOrDie(tiny.model().Forward(std::span(&run, 1), tiny.workspace()));
    return tiny.backend().weight_bytes_read() - before;
  };
  EXPECT_LT(bytes_read(0), bytes_read(1));
}

// Hidden states have the bits that a step of their token alone gives, and asking for them changes
// no logits.
TEST_P(InvarianceTest, HiddenStatesInChunksAndBatchesEqualTokenByToken) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 150);
  const auto other_prompt = Prompt(tiny, 30, 2);
  KvSequence single = tiny.NewSequence();
  KvSequence chunked = tiny.NewSequence();
  KvSequence other = tiny.NewSequence();
  std::vector<float> wanted;
  const auto append_states = [&](std::vector<float>* all, int64_t begin, int64_t end) {
    const ConstFloatRows states = tiny.workspace().HiddenStates();
    ASSERT_EQ(states.cols, tiny.model().hidden_size());
    ASSERT_LE(end, states.rows);
    for (int64_t i = begin; i < end; ++i) {
      all->insert(all->end(), states.row(i), states.row(i) + states.cols);
    }
  };
  for (size_t i = 0; i < prompt.size(); ++i) {
    const SequenceRun run = {&single, std::span(prompt).subspan(i, 1), 0, 1};
    ValueOrDie(tiny.model().Forward(std::span(&run, 1), tiny.workspace()));
    append_states(&wanted, 0, 1);
  }
  std::vector<float> states;
  for (size_t begin = 0; begin < prompt.size(); begin += 50) {
    const SequenceRun runs[] = {{&other, std::span(other_prompt).subspan(begin / 5, 10), 2, 3},
                                {&chunked, std::span(prompt).subspan(begin, 50), 0, 50}};
    ValueOrDie(tiny.model().Forward(runs, tiny.workspace()));
    append_states(&states, 3, 53);
  }
  EXPECT_TRUE(SameBits(states, wanted));
  const SequenceRun too_many = {&single, std::span(prompt).first(1), 0, 2};
  EXPECT_EQ(tiny.model().Forward(std::span(&too_many, 1), tiny.workspace()).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_P(InvarianceTest, ForkEqualsOriginal) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 150);
  const auto left = Prompt(tiny, 70, 2);
  const auto right = Prompt(tiny, 70, 3);
  KvSequence a = tiny.NewSequence();
  tiny.Feed(a, prompt);
  KvSequence b = a.Fork();
  // The two continue with different tokens, in turns: neither may see the other's rows.
  Logits from_a, from_b;
  for (size_t i = 0; i < left.size(); ++i) {
    const Logits x = tiny.Feed(a, {left[i]});
    const Logits y = tiny.Feed(b, {right[i]});
    from_a.insert(from_a.end(), x.begin(), x.end());
    from_b.insert(from_b.end(), y.begin(), y.end());
  }
  for (const auto& [tokens, logits] : {std::pair(left, from_a), std::pair(right, from_b)}) {
    KvSequence fresh = tiny.NewSequence();
    tiny.Feed(fresh, prompt);
    EXPECT_TRUE(SameBits(tiny.Feed(fresh, tokens), logits));
  }
}

TEST_P(InvarianceTest, TrimmedAndContinuedEqualsNeverAppended) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 150);
  const auto rest = Prompt(tiny, 80, 3);
  KvSequence trimmed = tiny.NewSequence();
  constexpr int64_t kSurplus = 21;
  trimmed.KeepStatesAt(PositionsWithin(150 - kSurplus, 150));
  tiny.Feed(trimmed, prompt);
  // A window layer has let go of old blocks and gives back less than the others: it says how much,
  // refuses more, and what it gives back is exact.
  const int64_t surplus = std::min(trimmed.MaxTrim(), kSurplus);
  ASSERT_GT(surplus, 0);
  if (trimmed.MaxTrim() < 150) {
    EXPECT_EQ(trimmed.Trim(trimmed.MaxTrim() + 1).error().code, ErrorCode::kFailedPrecondition);
    EXPECT_EQ(trimmed.position(), 150);
  }
  ASSERT_EQ(ValueOrDie(trimmed.Trim(surplus)), surplus);
  KvSequence fresh = tiny.NewSequence();
  tiny.Feed(fresh, {prompt.begin(), prompt.end() - surplus});
  const Logits wanted = tiny.Feed(fresh, rest);
  EXPECT_TRUE(SameBits(tiny.Feed(trimmed, rest), wanted));
}

// A reservation may be longer than the run that follows, and states asked for lie behind its end.
TEST_P(InvarianceTest, ShorterRunsThanReservedLeaveTheStatesWithinThem) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 60);
  const auto rest = Prompt(tiny, 20, 2);
  for (const int64_t run : {10, 20, 21, 60}) {
    KvSequence sequence = tiny.NewSequence();
    sequence.KeepStatesAt({5, 20, 50});
    OrDie(sequence.Reserve(60));
    tiny.Feed(sequence, {prompt.begin(), prompt.begin() + run});
    if (sequence.MaxTrim() < run) {
      const Position kept = run < 20 ? 5 : run < 50 ? 20 : 50;
      EXPECT_EQ(sequence.Checkpoints().back(), kept);
      OrDie(sequence.Trim(run - kept).status());
    } else {
      OrDie(sequence.Trim(run - 5).status());
    }
    const Position position = sequence.position();
    KvSequence fresh = tiny.NewSequence();
    tiny.Feed(fresh, {prompt.begin(), prompt.begin() + position});
    EXPECT_TRUE(SameBits(tiny.Feed(sequence, rest), tiny.Feed(fresh, rest))) << run;
  }
}

TEST_P(InvarianceTest, SnapshotRestoredEqualsStraightOn) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 333);
  const auto rest = Prompt(tiny, 90, 3);
  KvSequence straight = tiny.NewSequence();
  tiny.Feed(straight, prompt);
  const KvSnapshot snapshot = straight.Snapshot();
  const Logits wanted = tiny.Feed(straight, rest);  // goes on past the snapshot
  KvSequence restored = ValueOrDie(KvSequence::Restore(&tiny.pool(), snapshot));
  EXPECT_TRUE(SameBits(tiny.Feed(restored, rest), wanted));
  // Split anywhere and merged again, it is the same snapshot.
  auto halves = ValueOrDie(snapshot.Split(200));
  const KvSnapshot merged = ValueOrDie(KvSnapshot::Merge(halves.first, halves.second));
  KvSequence again = ValueOrDie(KvSequence::Restore(&tiny.pool(), merged));
  EXPECT_TRUE(SameBits(tiny.Feed(again, rest), wanted));
}

TEST_P(InvarianceTest, VerifiedDraftsEqualDecodedTokens) {
  TinyModel tiny(Options());
  const auto prompt = Prompt(tiny, 100);
  const auto truth = Prompt(tiny, 60, 2);
  KvSequence plain = tiny.NewSequence();
  tiny.Feed(plain, prompt);
  const Logits wanted = tiny.Feed(plain, truth, {1});
  // Rounds of 5 drafts of which a varying number is right; wrong ones must leave no trace.
  KvSequence sequence = tiny.NewSequence();
  tiny.Feed(sequence, prompt);
  Logits verified;
  std::mt19937 random(3);
  size_t done = 0;
  while (done < truth.size()) {
    const size_t right = std::min<size_t>(random() % 6, truth.size() - done);
    std::vector<Token> drafts(truth.begin() + static_cast<int64_t>(done),
                              truth.begin() + static_cast<int64_t>(done + right));
    while (drafts.size() < 5) drafts.push_back(static_cast<Token>(random() % 256));
    KvSequence* member = &sequence;
    Speculation round = ValueOrDie(Speculation::Begin(std::span(&member, 1)));
    const Position begin = sequence.position();
    sequence.KeepStatesAt(PositionsWithin(begin + 1, begin + 5));
    const Logits logits = tiny.Feed(sequence, drafts);
    const int64_t accepted = static_cast<int64_t>(right);
    OrDie(round.Commit(std::span(&accepted, 1)));
    verified.insert(verified.end(), logits.begin(),
                    logits.begin() + accepted * tiny.model().vocab_size());
    done += right;
  }
  EXPECT_TRUE(SameBits(verified, wanted));
}

INSTANTIATE_TEST_SUITE_P(
    Models, InvarianceTest,
    testing::Values(Case{"public_llama_f32", "", "f32"}, Case{"public_llama_f32", "q8", "f16"},
                    Case{"public_qwen3_f32", "q4", "bf16"}, Case{"public_gemma3_f32", "", "f16"},
                    Case{"transformers_gemma3_sharded_bf16", "q8", "f32"},
                    Case{"transformers_qwen2_f16", "", "f16"},
                    Case{"transformers_llama3_rope_bf16", "", "bf16"},
                    Case{"transformers_llama3_rope_bf16", "bf16", "bf16"},
                    Case{"transformers_gemma2_bf16", "", "f16"},
                    Case{"transformers_qwen3_moe_bf16", "q8", "f16"},
                    Case{"transformers_gemma4_shared_bf16", "", "f16"},
                    Case{"transformers_gemma4_one_projection_bf16", "", "f16"},
                    Case{"transformers_gemma4_experts_bf16", "q4", "f32"},
                    Case{"transformers_gpt_oss_bf16", "", "f16"},
                    Case{"transformers_gpt_oss_mxfp4", "", "bf16"},
                    Case{"transformers_qwen3_5_bf16", "", "f16"},
                    Case{"transformers_qwen3_5_moe_bf16", "q8", "f32"},
                    Case{"transformers_qwen3_next_bf16", "q4", "f16"},
                    Case{"mlx_qwen3_5_q4g32_bf16", "", "f16"}, Case{"hf_qwen3_gptq", "", "f16"},
                    Case{"hf_qwen3_compressed_tensors", "", "f16"}, Case{"hf_qwen3_fp8", "", "f16"},
                    Case{"transformers_smollm3_bf16", "q8", "f16"},
                    Case{"transformers_olmo3_bf16", "", "f16"},
                    Case{"transformers_ministral3_bf16", "q4", "f16"},
                    Case{"transformers_granite_dense_bf16", "", "bf16"},
                    Case{"transformers_phi4_mini_bf16", "", "f32"},
                    Case{"transformers_lfm2_conv_bias_bf16", "", "f16"},
                    Case{"transformers_lfm2_moe_bf16", "q8", "f16"},
                    Case{"transformers_granite_hybrid_bf16", "q4", "f16"},
                    Case{"transformers_granite_hybrid_moe_bf16", "", "bf16"},
                    Case{"transformers_deepseek_v2_bf16", "", "f16"},
                    Case{"transformers_deepseek_v3_bf16", "q8", "bf16"},
                    Case{"mlx_glm4_moe_lite_q4g32_bf16", "", "f16"},
                    Case{"transformers_glm4_bf16", "q4", "f16"}),
    CaseName);

}  // namespace
}  // namespace kvasir
