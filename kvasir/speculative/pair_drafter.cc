#include "kvasir/speculative/pair_drafter.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/rng.h"
#include "kvasir/tensor/weight_format.h"

namespace kvasir {
namespace {

// Slot S depends on all tokens up to S + 1. Keyed by the tokens from the second on, n slots match
// where n + 1 tokens do, if the first token is part of the salt.
uint64_t PairSalt(uint64_t salt, Token first) {
  const auto mixed = Philox4x32(salt, static_cast<uint64_t>(first));
  return static_cast<uint64_t>(mixed[0]) << 32 | mixed[1];
}

// As many as steps with drafts leave. More are a prompt's, which is no cost of drafts.
constexpr int64_t kFewPending = 20;
// Pairs in a row that another state may stand in for.
constexpr int64_t kMostStandIns = 8;
// An eighth, a quarter, half of a vocabulary.
constexpr size_t kParts = 3;
// Smaller vocabularies are looked at whole.
constexpr int64_t kLeastTokens = 16'384;
// Of so many tokens of a sequence one may lie outside of what is looked at.
constexpr int64_t kRare = 16;

}  // namespace

struct PairDrafter::State final : DraftState {
  std::optional<KvSequence> cache;
  int64_t settled = 0;  // its rows that hold what the target has read; others are guesses
  int64_t missing = 0;  // slots between them that nobody reported
  std::array<int64_t, kParts> outside = {};  // of its tokens so many are in no such part
  int64_t counted = 0;
  std::vector<float> pending;  // states of the slots from next_slot() on
  std::vector<float> last;     // state of slot next_slot() - 1; empty: not known
  bool is_given_up = false;

  void GiveUp() {
    *this = State();
    is_given_up = true;
  }
  int64_t next_slot() const { return settled + missing; }
  int64_t pending_slots(int64_t state_size) const {
    return static_cast<int64_t>(pending.size()) / state_size;
  }
  // What was guessed is forgotten.
  void DropGuesses() {
    const auto trimmed = cache->Trim(cache->position() - settled);
    KVASIR_CHECK(trimmed.ok());
  }
};

Result<std::unique_ptr<PairDrafter>> PairDrafter::Create(PairDrafterParts parts) {
  KVASIR_TRY_OK(parts.spec->Validate());
  for (const KvLayerSpec& layer : parts.spec->layers) {
    if (!layer.is_recurrent() && layer.retention.kind == RetentionSpec::Kind::kAll) continue;
    return {ErrorCode::kInvalidArgument,
            "drafting head: its cache must keep every row, so that guesses can be taken back"};
  }
  if (parts.sampleable_tokens < 1 || parts.sampleable_tokens > parts.head->vocab_size()) {
    return {ErrorCode::kInvalidArgument,
            "drafting head: its vocabulary has " + std::to_string(parts.head->vocab_size()) +
                " tokens and the target may choose " + std::to_string(parts.sampleable_tokens)};
  }
  return std::unique_ptr<PairDrafter>(new PairDrafter(std::move(parts)));
}

std::unique_ptr<DraftState> PairDrafter::NewState() { return std::make_unique<State>(); }

std::unique_ptr<DraftState> PairDrafter::ForkState(const DraftState& base) {
  const State& from = static_cast<const State&>(base);
  auto state = std::make_unique<State>();
  state->settled = from.settled;
  state->missing = from.missing;
  state->outside = from.outside;
  state->counted = from.counted;
  state->pending = from.pending;
  state->last = from.last;
  state->is_given_up = from.is_given_up;
  if (from.cache) state->cache = from.cache->Fork();
  return state;
}

// Finds what an earlier sequence has left of these pairs.
void PairDrafter::Begin(State& state, const DraftReport& report) {
  const int64_t slots = report.known.size() - 1;
  const std::vector<Token> key = report.known.Copy(1, report.known.size());
  auto match = tree_.Find(PairSalt(report.salt, report.known[0]), key, slots);
  if (!match.ok()) return state.GiveUp();
  state.settled = match->tokens;
  state.cache = std::move(match->sequence);
  CountTokens(state, std::span(key).first(static_cast<size_t>(state.settled)));
}

int64_t PairDrafter::PartOfVocabulary(size_t index) const {
  const int64_t part = parts_.sampleable_tokens >> (kParts - index);
  return part / kPanelOutputs * kPanelOutputs;
}

void PairDrafter::CountTokens(State& state, std::span<const Token> tokens, int64_t times) const {
  const int64_t text = parts_.text_tokens > 0 ? parts_.text_tokens : parts_.sampleable_tokens;
  for (const Token token : tokens) {
    if (token >= text) continue;
    state.counted += times;
    for (size_t part = 0; part < kParts; ++part) {
      if (token >= PartOfVocabulary(part)) state.outside[part] += times;
    }
  }
}

// The smallest part that does for every sequence of the pass.
int64_t PairDrafter::TokensToLookAt(std::span<const Member> members) const {
  if (parts_.sampleable_tokens <= kLeastTokens) return parts_.head->vocab_size();
  for (size_t part = 0; part < kParts; ++part) {
    const bool does = std::ranges::all_of(members, [part](const Member& member) {
      return member.tokens.empty() || member.state->outside[part] * kRare <= member.state->counted;
    });
    if (does) return PartOfVocabulary(part);
  }
  return parts_.head->vocab_size();
}

void PairDrafter::Report(const DraftReport& report) {
  State& state = static_cast<State&>(*report.state);
  if (state.is_given_up) return;
  if (!state.cache) Begin(state, report);
  const int64_t size = parts_.head->state_size();
  if (state.is_given_up || report.hidden.cols != size) return state.GiveUp();
  if (report.begin > state.next_slot() + state.pending_slots(size) + kMostStandIns) {
    Settle(state, report.known);  // pending slots have no gap among them
    if (state.is_given_up) return;
    state.missing = report.begin - state.settled;
    state.last.clear();
  }
  const int64_t level = state.next_slot() + state.pending_slots(size);
  for (int64_t slot = level; slot < report.begin + report.hidden.rows; ++slot) {
    const float* const row = report.hidden.row(std::max<int64_t>(0, slot - report.begin));
    state.pending.insert(state.pending.end(), row, row + size);
    if (state.pending_slots(size) >= kMostPending) Settle(state, report.known);
    if (state.is_given_up) return;
  }
  if (state.pending_slots(size) > kFewPending) {
    Settle(state, report.known);
    state.pending.shrink_to_fit();
  }
}

bool PairDrafter::IsLevel(const DraftRequest& request) const {
  const State& state = static_cast<const State&>(*request.state);
  const int64_t slots = request.known.size() - 1;
  if (state.is_given_up || !state.cache) return false;
  if (state.next_slot() + state.pending_slots(parts_.head->state_size()) != slots) return false;
  // The first draft comes of the last pair, read now or once more.
  return !state.pending.empty() || !state.last.empty();
}

std::optional<int64_t> PairDrafter::MissingTokens(const DraftRequest& request) {
  return IsLevel(request) ? std::optional<int64_t>(0) : std::nullopt;
}

// The pairs to read, those of which both halves are known; guesses are dropped first.
PairDrafter::Member PairDrafter::Pending(State& state, const KnownTokens& known) const {
  const int64_t size = parts_.head->state_size();
  state.DropGuesses();
  const int64_t begin = state.next_slot();
  const int64_t end = std::min(begin + state.pending_slots(size), known.size() - 1);
  const int64_t count = std::max<int64_t>(0, end - begin);
  Member member = {
      &state, known.Copy(begin + 1, begin + 1 + count), {state.pending.data(), count, size, size}};
  CountTokens(state, member.tokens);
  return member;
}

// Reads what is pending, a token whose successor is not known yet left out.
void PairDrafter::Settle(State& state, const KnownTokens& known) {
  std::vector<Member> members = {Pending(state, known)};
  if (!members[0].tokens.empty()) (void)Forward(members, 0);
}

std::optional<PairHead::Output> PairDrafter::Forward(std::vector<Member>& members, int64_t tokens) {
  for (;;) {
    std::vector<PairRun> runs;
    Member* last = nullptr;
    for (Member& member : members) {
      if (member.tokens.empty()) continue;
      runs.push_back({&*member.state->cache, member.tokens, member.states});
      last = &member;
    }
    if (runs.empty()) return std::nullopt;
    auto output = parts_.head->Forward(runs, tokens, workspace_);
    if (output.ok()) {
      for (Member& member : members) {
        if (member.tokens.empty() || member.is_guess) continue;
        State& state = *member.state;
        const auto read = static_cast<int64_t>(member.tokens.size());
        const float* const newest = member.states.row(read - 1);
        state.last.assign(newest, newest + member.states.cols);
        state.settled += read;
        state.pending.erase(state.pending.begin(),
                            state.pending.begin() + read * member.states.cols);
      }
      return *output;
    }
    if (output.error().code == ErrorCode::kResourceExhausted) {
      size_t wanted = 0;
      for (const PairRun& run : runs) {
        wanted += run.cache->BytesToReserve(static_cast<int64_t>(run.tokens.size()));
      }
      if (tree_.Evict(wanted) > 0) continue;
    }
    if (!last->is_guess) GiveUp(*last->state);
    last->tokens.clear();
  }
}

void PairDrafter::GiveUp(State& state) {
  state.GiveUp();
  if (std::exchange(has_warned_, true)) return;
  Log(parts_.log, LogLevel::kWarning,
      "drafts: the cache of the layer that drafts is full; answers that do not fit in are made "
      "without drafts (--draft-cache-bytes)");
}

Token PairDrafter::Draw(const DraftRequest& request, std::span<const Token> drafted,
                        ConstFloatRows logits, int64_t row) {
  const TokenHistory history = {request.known.prompt, request.known.answer, drafted};
  const auto tokens = static_cast<size_t>(std::min(logits.cols, parts_.sampleable_tokens));
  return sampler_.Sample({logits.row(row), tokens}, *request.sampling,
                         static_cast<Position>(history.size()), history);
}

std::vector<std::vector<Token>> PairDrafter::Propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<Token>> drafts;
  while (!requests.empty()) {
    const size_t count = std::min<size_t>(requests.size(), kMostSequences);
    for (std::vector<Token>& of_one : ProposeTogether(requests.first(count))) {
      drafts.push_back(std::move(of_one));
    }
    requests = requests.subspan(count);
  }
  return drafts;
}

std::vector<std::vector<Token>> PairDrafter::ProposeTogether(
    std::span<const DraftRequest> requests) {
  std::vector<std::vector<Token>> drafts(requests.size());
  std::vector<size_t> open;  // requests that go on
  std::vector<Member> members;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!IsLevel(requests[i])) continue;
    State& state = static_cast<State&>(*requests[i].state);
    if (state.pending.empty()) {
      // Nothing new: the last pair is read once more, for what it says.
      state.pending = std::move(state.last);
      state.last.clear();
      --state.settled;
      const Token token = requests[i].known[requests[i].known.size() - 1];
      CountTokens(state, std::span(&token, 1), -1);
    }
    open.push_back(i);
    members.push_back(Pending(state, requests[i].known));
  }
  while (!open.empty()) {
    const auto output = Forward(members, TokensToLookAt(members));
    if (!output) return drafts;
    std::vector<size_t> next_open;
    std::vector<Member> next;
    int64_t row = 0;
    for (size_t m = 0; m < members.size(); ++m) {
      if (members[m].tokens.empty()) continue;
      const size_t i = open[m];
      drafts[i].push_back(Draw(requests[i], drafts[i], output->logits, row));
      if (static_cast<int64_t>(drafts[i].size()) < requests[i].max_drafts) {
        next_open.push_back(i);
        next.push_back({members[m].state, {drafts[i].back()}, output->states.Part(row, 1), true});
      }
      ++row;
    }
    open = std::move(next_open);
    members = std::move(next);
  }
  return drafts;
}

void PairDrafter::Finish(DraftState& base, KnownTokens known, uint64_t salt) {
  State& state = static_cast<State&>(base);
  if (!state.cache) return;
  Settle(state, known);
  // With a gap the rows say what they do of these tokens no more; before it the tree has them.
  if (!state.cache || state.settled == 0 || state.missing > 0) return;
  state.DropGuesses();
  (void)tree_.Insert(PairSalt(salt, known[0]), known.Copy(1, 1 + state.settled), *state.cache);
}

}  // namespace kvasir
