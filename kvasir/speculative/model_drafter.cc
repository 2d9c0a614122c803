#include "kvasir/speculative/model_drafter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {

struct ModelDrafter::State final : DraftState {
  std::optional<KvSequence> sequence;
  std::vector<Token> held;   // the tokens whose rows the sequence has
  int64_t agreed = 0;        // of them, known to be the target's
  bool is_given_up = false;  // it did not fit
  // From a guess until it is known how much of it was right: meanwhile no window forgets the rows
  // that going back needs. Closed before the sequence goes.
  std::optional<Speculation> speculation;
  int64_t speculated_from = 0;

  void GiveUp() {
    speculation.reset();
    sequence.reset();
    held.clear();
    agreed = 0;
    is_given_up = true;
  }
};

Result<std::unique_ptr<ModelDrafter>> ModelDrafter::Create(DraftModelParts parts,
                                                           ModelDrafterOptions options) {
  KVASIR_TRY_OK(parts.spec->Validate());
  if (options.step_tokens < 1) {
    return {ErrorCode::kInvalidArgument, "draft model: step_tokens must be at least 1, not " +
                                             std::to_string(options.step_tokens)};
  }
  if (options.inline_tokens < 0) {
    return {ErrorCode::kInvalidArgument, "draft model: inline_tokens must be at least 0, not " +
                                             std::to_string(options.inline_tokens)};
  }
  if (parts.sampleable_tokens < 1 || parts.sampleable_tokens > parts.model->vocab_size()) {
    return {ErrorCode::kInvalidArgument,
            "draft model: its vocabulary has " + std::to_string(parts.model->vocab_size()) +
                " tokens and the target may choose " + std::to_string(parts.sampleable_tokens)};
  }
  return std::unique_ptr<ModelDrafter>(new ModelDrafter(std::move(parts), options));
}

ModelDrafter::ModelDrafter(DraftModelParts parts, ModelDrafterOptions options)
    : parts_(std::move(parts)),
      options_(options),
      tree_(parts_.pool, parts_.spec, parts_.max_index_bytes) {}

std::unique_ptr<DraftState> ModelDrafter::NewState() { return std::make_unique<State>(); }

// Goes back to what the cache and the known tokens have in common, without the last known token,
// whose logits are wanted.
void ModelDrafter::Align(const DraftRequest& request) {
  State& state = static_cast<State&>(*request.state);
  if (state.is_given_up) return;
  const int64_t last = request.known.size() - 1;
  if (!state.sequence) {
    const std::vector<Token> known = request.known.Copy(0, request.known.size());
    auto match = tree_.Find(request.salt, known, last);
    if (!match.ok()) return;
    state.held.assign(known.begin(), known.begin() + match->tokens);
    state.agreed = match->tokens;
    state.sequence = std::move(match->sequence);
  }
  const int64_t common = std::min(last, static_cast<int64_t>(state.held.size()));
  while (state.agreed < common &&
         state.held[static_cast<size_t>(state.agreed)] == request.known[state.agreed]) {
    ++state.agreed;
  }
  KeepAgreed(state);
}

// Drops the rows of what is not the target's.
void ModelDrafter::KeepAgreed(State& state) {
  const int64_t wrong = static_cast<int64_t>(state.held.size()) - state.agreed;
  if (state.speculation) {
    const int64_t kept[] = {std::max<int64_t>(0, state.agreed - state.speculated_from)};
    if (!state.speculation->Commit(kept).ok()) {
      state.speculation->Rollback();
      state.agreed = std::min(state.agreed, state.speculated_from);
    }
    state.speculation.reset();
  } else if (wrong > 0 && !state.sequence->Trim(wrong).ok()) {
    // A window has moved on: the cache is read again from the start.
    (void)state.sequence->Trim(state.sequence->position());
    state.agreed = 0;
  }
  state.held.resize(static_cast<size_t>(state.agreed));
}

std::optional<int64_t> ModelDrafter::MissingTokens(const DraftRequest& request) {
  Align(request);
  State& state = static_cast<State&>(*request.state);
  if (state.is_given_up || !state.sequence) return std::nullopt;
  // Longer than the draft's context: what it would read for that is for nothing.
  if (request.known.size() > parts_.model->context_tokens()) {
    state.GiveUp();
    return std::nullopt;
  }
  const int64_t missing = request.known.size() - 1 - static_cast<int64_t>(state.held.size());
  return missing > std::min(options_.inline_tokens, options_.step_tokens - 1) ? missing : 0;
}

void ModelDrafter::Follow(std::span<const DraftRequest> requests) {
  int64_t left = options_.step_tokens;
  std::vector<Member> members;
  for (const DraftRequest& request : requests) {
    const int64_t missing = MissingTokens(request).value_or(0);
    if (missing == 0) continue;
    State& state = static_cast<State&>(*request.state);
    const int64_t count = std::min({missing, left, state.sequence->RunLimit()});
    if (count <= 0) continue;
    left -= count;
    members.push_back({&state, request.known.Copy(state.agreed, state.agreed + count), false});
  }
  (void)Forward(members);
}

// But for what a guess reads on the way.
bool ModelDrafter::HasCaughtUp(const DraftRequest& request) {
  if (MissingTokens(request) != 0) return false;
  const State& state = static_cast<const State&>(*request.state);
  return request.known.size() - static_cast<int64_t>(state.held.size()) <=
         state.sequence->RunLimit();
}

std::vector<std::vector<Token>> ModelDrafter::Propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<Token>> drafts(requests.size());
  std::vector<size_t> open;  // requests that go on
  int64_t left = options_.step_tokens;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!HasCaughtUp(requests[i])) continue;
    State& state = static_cast<State&>(*requests[i].state);
    const int64_t rows = requests[i].known.size() - state.agreed;
    if (rows > left) continue;
    KvSequence* const sequence = &*state.sequence;
    auto speculation = Speculation::Begin({&sequence, 1});
    if (!speculation.ok()) continue;
    state.speculation.emplace(*std::move(speculation));
    state.speculated_from = sequence->position();
    open.push_back(i);
    left -= rows;
  }
  while (!open.empty()) {
    std::vector<Member> members;
    for (const size_t i : open) {
      const KnownTokens& known = requests[i].known;
      State* const state = static_cast<State*>(requests[i].state);
      members.push_back({state,
                         drafts[i].empty() ? known.Copy(state->agreed, known.size())
                                           : std::vector<Token>{drafts[i].back()},
                         true});
    }
    const std::optional<ConstFloatRows> logits = Forward(members);
    if (!logits) return drafts;
    std::vector<size_t> next_open;
    int64_t row = 0;
    for (size_t m = 0; m < members.size(); ++m) {
      if (members[m].tokens.empty()) continue;
      const DraftRequest& request = requests[open[m]];
      std::vector<Token>& drafted = drafts[open[m]];
      const TokenHistory history = {request.known.prompt, request.known.answer, drafted};
      const std::span<const float> choices(logits->row(row++),
                                           static_cast<size_t>(parts_.sampleable_tokens));
      drafted.push_back(sampler_.Sample(choices, *request.sampling,
                                        static_cast<Position>(history.size()), history));
      const KvSequence& sequence = *members[m].state->sequence;
      const bool has_room =
          sequence.RunLimit() > 0 && sequence.position() + 1 < parts_.model->context_tokens();
      if (static_cast<int64_t>(drafted.size()) < request.max_drafts && has_room) {
        next_open.push_back(open[m]);
      }
    }
    open = std::move(next_open);
  }
  return drafts;
}

std::optional<ConstFloatRows> ModelDrafter::Forward(std::vector<Member>& members) {
  for (;;) {
    std::vector<SequenceRun> runs;
    Member* last = nullptr;
    for (Member& member : members) {
      if (member.tokens.empty()) continue;
      runs.push_back({.sequence = &*member.state->sequence,
                      .tokens = member.tokens,
                      .logits_rows = member.wants_logits ? 1 : 0});
      last = &member;
    }
    if (runs.empty()) return std::nullopt;
    const auto logits = parts_.model->Forward(runs, workspace_);
    if (logits.ok()) {
      for (const Member& member : members) {
        std::vector<Token>& held = member.state->held;
        held.insert(held.end(), member.tokens.begin(), member.tokens.end());
      }
      return *logits;
    }
    if (logits.error().code == ErrorCode::kResourceExhausted) {
      size_t wanted = 0;
      for (const SequenceRun& run : runs) {
        wanted += run.sequence->BytesToReserve(static_cast<int64_t>(run.tokens.size()));
      }
      if (tree_.Evict(wanted) > 0) continue;
    }
    // Whose tokens the context has no room for is at fault, else the last, for want of memory.
    bool is_found = false;
    for (Member& member : members) {
      if (member.tokens.empty()) continue;
      const int64_t end =
          member.state->sequence->position() + static_cast<int64_t>(member.tokens.size());
      if (end <= parts_.model->context_tokens()) continue;
      is_found = true;
      member.state->GiveUp();
      member.tokens.clear();
    }
    if (is_found) continue;
    if (logits.error().code == ErrorCode::kResourceExhausted) WarnOfMemory();
    last->state->GiveUp();
    last->tokens.clear();
  }
}

void ModelDrafter::WarnOfMemory() {
  if (std::exchange(has_warned_, true)) return;
  Log(options_.log, LogLevel::kWarning,
      "the draft model's cache of " + std::to_string(parts_.pool->budget_bytes()) +
          " bytes is full: answers that do not fit in are made without drafts; raise "
          "--draft-cache-bytes");
}

void ModelDrafter::Finish(DraftState& base, KnownTokens known, uint64_t salt) {
  State& state = static_cast<State&>(base);
  if (!state.sequence || state.agreed == 0) return;
  KeepAgreed(state);
  if (state.agreed == 0) return;
  (void)tree_.Insert(salt, known.Copy(0, state.agreed), *state.sequence);
}

}  // namespace kvasir
