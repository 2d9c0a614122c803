#include "kvasir/kv/speculation.h"

#include <string>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

Result<Speculation> Speculation::Begin(std::span<KvSequence* const> sequences) {
  Speculation speculation;
  for (size_t i = 0; i < sequences.size(); ++i) {
    KvSequence* sequence = sequences[i];
    if (sequence->speculation_start_ >= 0) {
      for (const Member& member : speculation.members_) member.sequence->speculation_start_ = -1;
      return {ErrorCode::kFailedPrecondition,
              "speculation: sequence " + std::to_string(i) +
                  " is in an open speculation already or named twice; commit or roll back first"};
    }
    sequence->speculation_start_ = sequence->position();
    speculation.members_.push_back({sequence, sequence->position()});
  }
  speculation.open_ = true;
  return speculation;
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
    if (accepted[i] >= 0 && accepted[i] <= appended(i)) continue;
    return {ErrorCode::kInvalidArgument,
            "speculation: " + std::to_string(accepted[i]) + " accepted tokens of sequence " +
                std::to_string(i) + ", of which " + std::to_string(appended(i)) + " were appended"};
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
  member.sequence->speculation_start_ = -1;
  member.sequence->ReleaseUnneeded();
}

}  // namespace kvasir
