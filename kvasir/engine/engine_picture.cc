#include "kvasir/engine/engine_picture.h"

#include <vector>

#include "kvasir/engine/engine_job.h"
#include "kvasir/kv/kv_content.h"

namespace kvasir {

EnginePicture Engine::Picture(const CachePictureOptions& options) const {
  std::vector<PicturedSequence> running;
  std::vector<const KvBlock*> live;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      // Also of one that is being read back and has no sequence yet.
      const std::vector<const KvBlock*> blocks = stream->BlockReferences();
      live.insert(live.end(), blocks.begin(), blocks.end());
      if (!stream->sequence) continue;
      const KvSequence& sequence = *stream->sequence;
      running.push_back(
          {&sequence, job->id, job->request.salt, stream->known().Copy(0, sequence.position())});
    }
  }
  EnginePicture picture;
  picture.made_at = EngineClock::now();
  picture.cache = PictureOf(running, tree_, options);
  picture.stats = Stats();
  picture.budget_bytes = parts_.pool->budget_bytes();
  picture.reserved_bytes = parts_.pool->reserved_bytes();
  picture.live_bytes = BlockBytes(std::move(live));
  return picture;
}

}  // namespace kvasir
