// ShardWriter: writes the tensors of one planned file, in memory bounded by one tensor's scales.
// Deliberately sequential over tensors: threads share the rows of one.
#ifndef KVASIR_CONVERT_SHARD_WRITER_H_
#define KVASIR_CONVERT_SHARD_WRITER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/convert/folder_plan.h"

namespace kvasir {

class ShardWriter {
 public:
  // `progress` is told how many bytes were written since it was last called. Both are borrowed.
  ShardWriter(ThreadPool* pool, const std::function<void(uint64_t)>* progress)
      : pool_(*pool), progress_(*progress) {}

  // The file appears under `path` when all of it is there. ERRORS: kIo, kInvalidArgument.
  Status Write(const std::string& path, const std::vector<PlannedTensor>& tensors,
               const std::string& format_metadata);

 private:
  Status WriteTensor(const PlannedTensor& tensor, SafetensorsWriter* writer);
  Status CopyTensor(const PlannedTensor& tensor, SafetensorsWriter* writer);

  ThreadPool& pool_;
  const std::function<void(uint64_t)>& progress_;
};

}  // namespace kvasir

#endif  // KVASIR_CONVERT_SHARD_WRITER_H_
