#include "kvasir/kv/speculation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

Result<Speculation> Speculation::Begin(std::span<KvSequence* const> sequences) {
  Speculation speculation;
  const Status opened = [&]() -> Status {
    for (size_t i = 0; i < sequences.size(); ++i) {
      KVASIR_TRY_OK(speculation.Open(sequences[i], i));
    }
    // Last: evicted rows do not come back.
    return KvSequence::CompactAllDue(sequences);
  }();
  if (!opened.ok()) {
    for (const Member& member : speculation.members_) Forget(member);
    return opened.error();
  }
  for (const Member& member : speculation.members_) {
    member.sequence->speculation_start_ = member.start;
  }
  speculation.open_ = true;
  return speculation;
}

Status Speculation::Open(KvSequence* sequence, size_t index) {
  const bool is_named =
      std::any_of(members_.begin(), members_.end(),
                  [sequence](const Member& member) { return member.sequence == sequence; });
  if (is_named || sequence->speculation_start_ >= 0) {
    return {ErrorCode::kFailedPrecondition,
            "speculation: sequence " + std::to_string(index) +
                " is in an open speculation already or named twice; commit or roll back first"};
  }
  const size_t checkpoints = sequence->content_.states.checkpoints.size();
  KVASIR_TRY_OK(sequence->Checkpoint());
  members_.push_back(
      {sequence, sequence->position(), sequence->content_.states.checkpoints.size() > checkpoints});
  return {};
}

Speculation::Speculation(Speculation&& other) noexcept
    : members_(std::move(other.members_)), open_(std::exchange(other.open_, false)) {}

Speculation::~Speculation() { Rollback(); }

int64_t Speculation::appended(size_t i) const {
  KVASIR_CHECK(open_ && i < members_.size());
  return members_[i].sequence->position() - members_[i].start;
}

Status Speculation::Commit(std::span<const int64_t> accepted) {
  if (!open_) return {ErrorCode::kFailedPrecondition, "speculation: it is closed already"};
  if (accepted.size() != members_.size()) {
    return {ErrorCode::kInvalidArgument, "speculation: " + std::to_string(accepted.size()) +
                                             " counts for " + std::to_string(members_.size()) +
                                             " sequences; give one for each"};
  }
  for (size_t i = 0; i < accepted.size(); ++i) {
    const std::string count = "speculation: " + std::to_string(accepted[i]) +
                              " accepted tokens of sequence " + std::to_string(i);
    if (accepted[i] < 0 || accepted[i] > appended(i)) {
      return {ErrorCode::kInvalidArgument,
              count + ", of which " + std::to_string(appended(i)) + " were appended"};
    }
    if (members_[i].sequence->StatesReach(members_[i].start + accepted[i])) continue;
    return {ErrorCode::kFailedPrecondition,
            count + ": its recurrent layers have no state there; accept 0 or " +
                std::to_string(appended(i)) +
                ", or keep its states after each token (KeepStatesAt)"};
  }
  for (size_t i = 0; i < accepted.size(); ++i) {
    Close(members_[i], members_[i].start + accepted[i]);
  }
  open_ = false;
  return {};
}

void Speculation::Rollback() {
  if (!open_) return;
  for (const Member& member : members_) Close(member, member.start);
  open_ = false;
}

void Speculation::Close(const Member& member, Position position) {
  member.sequence->SetPosition(position);
  member.sequence->kept_positions_.clear();
  Forget(member);
  // Where nothing was kept all is as it was.
  if (position > member.start) member.sequence->ReleaseUnneeded(member.start);
}

void Speculation::Forget(const Member& member) {
  member.sequence->speculation_start_ = -1;
  if (!member.checkpointed) return;
  std::erase_if(member.sequence->content_.states.checkpoints,
                [&](const auto& checkpoint) { return checkpoint.position == member.start; });
}

}  // namespace kvasir
