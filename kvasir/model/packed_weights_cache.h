// PackedWeightsCache: a model's packed weights in a folder's file: the first load writes it, later
// ones map it and pack nothing.
// Deliberately never a reason to fail: whatever is wrong with the file or the folder is a warning,
// and the model is packed as if there were neither.
#ifndef KVASIR_MODEL_PACKED_WEIGHTS_CACHE_H_
#define KVASIR_MODEL_PACKED_WEIGHTS_CACHE_H_

#include <optional>
#include <string>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/base/file.h"
#include "kvasir/base/log.h"
#include "kvasir/formats/packed_weights_file.h"

namespace kvasir {

struct PackedWeightsSource {
  std::string model;                   // path of the folder or file, for the name
  std::vector<FileVersion> files;      // all that the weights depend on, as they were opened
  std::optional<WeightFormat> format;  // unset: as stored
};

class PackedWeightsCache {
 public:
  // `folder` is created if need be. A file in it that is not of these weights is not looked at; one
  // that should be and does not fit is replaced.
  PackedWeightsCache(const std::string& folder, const PackedWeightsSource& source, LogSink log);

  // Whether there is a file to map. Otherwise matrices are to be packed and added.
  bool is_mapped() const { return file_.has_value(); }
  // ERRORS: as PackedWeightsFile::Find; the file is then unfit. REQUIRES: is_mapped().
  Result<PackedMatrix> Find(const std::string& key, const PackedShape& shape);
  // A matrix without panels ends the writing. REQUIRES: !is_mapped().
  void Add(const std::string& key, const WeightMatrix& matrix);
  // Whether the file does not fit after all: Repack, then load everything again.
  bool is_unfit() const { return !misfit_.empty(); }
  // Gives the file up and begins one to replace it. REQUIRES: is_unfit().
  void Repack();
  // All weights are loaded: what was added becomes the file, unless the model's files have changed
  // meanwhile.
  void Finish();

 private:
  void StartWriting();
  void StopWriting(const std::string& reason);

  const PackedWeightsSource source_;
  const LogSink log_;
  std::string fingerprint_;
  std::string path_;
  std::optional<PackedWeightsFile> file_;
  std::optional<PackedWeightsWriter> writer_;
  std::string misfit_;  // why a matrix was not found
  size_t found_ = 0;
  size_t found_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_PACKED_WEIGHTS_CACHE_H_
