#include "kvasir/model/packed_weights_cache.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/checksum.h"
#include "kvasir/base/system_error.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

Result<std::string> FingerprintOf(const PackedWeightsSource& source) {
  std::string all =
      source.format ? std::string(WeightFormatName(*source.format)) : std::string("stored");
  all += "\n";
  for (const FileVersion& file : source.files) {
    std::error_code error;
    const fs::path path = fs::canonical(file.path, error);  // however the caller names it
    if (error) return {ErrorCode::kIo, file.path + ": " + error.message()};
    all += path.string() + " " + file.stamp + "\n";
  }
  return all;
}

bool IsUnchanged(const FileVersion& file) {
  const auto now = FileVersion::Of(file.path);
  return now.ok() && *now == file;
}

// Of a model's name, so that with what follows it is one of a file.
constexpr size_t kMostNameBytes = 128;

// "Qwen3-0.6B-q8-0123456789abcdef.panels": the digits alone tell files apart.
std::string FileName(const PackedWeightsSource& source, const std::string& fingerprint) {
  fs::path model = fs::path(source.model).lexically_normal();
  if (!model.has_filename()) model = model.parent_path();  // a trailing slash
  const uint64_t checksum = Checksum64(std::as_bytes(std::span(fingerprint)));
  if (model.extension() == ".gguf") model.replace_extension();  // a folder's name has other dots
  return model.filename().string().substr(0, kMostNameBytes) + "-" +
         fingerprint.substr(0, fingerprint.find('\n')) + "-" + ChecksumDigits(checksum) + ".panels";
}

std::string Megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

PackedWeightsCache::PackedWeightsCache(const std::string& folder, const PackedWeightsSource& source,
                                       LogSink log)
    : source_(source), log_(std::move(log)) {
  auto fingerprint = FingerprintOf(source_);
  if (!fingerprint.ok()) {
    StopWriting(fingerprint.error().message);
    return;
  }
  fingerprint_ = *std::move(fingerprint);
  path_ = (fs::path(folder) / FileName(source_, fingerprint_)).string();
  auto file = PackedWeightsFile::Open(path_, fingerprint_);
  if (file.ok()) {
    file_ = *std::move(file);
    return;
  }
  if (file.error().code != ErrorCode::kNotFound) {
    Log(log_, LogLevel::kWarning,
        "packed weights: " + file.error().message + "; they are packed anew");
  }
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  // Of a folder that is there, creating the file says it better.
  if (error && !fs::exists(folder, ignored)) {
    StopWriting(SystemStatus(folder, error).error().message);
    return;
  }
  StartWriting();
}

void PackedWeightsCache::StartWriting() {
  auto writer = PackedWeightsWriter::Create(path_, fingerprint_);
  if (!writer.ok()) return StopWriting(writer.error().message);
  writer_ = *std::move(writer);
}

void PackedWeightsCache::StopWriting(const std::string& reason) {
  writer_.reset();
  Log(log_, LogLevel::kWarning, "packed weights: " + reason + "; they are not kept");
}

Result<PackedMatrix> PackedWeightsCache::Find(const std::string& key, const PackedShape& shape) {
  KVASIR_CHECK(is_mapped());
  auto matrix = file_->Find(key, shape);
  if (!matrix.ok()) {
    misfit_ = matrix.error().message;
    return matrix;
  }
  ++found_;
  found_bytes_ += matrix->bytes();
  return matrix;
}

void PackedWeightsCache::Add(const std::string& key, const WeightMatrix& matrix) {
  KVASIR_CHECK(!is_mapped());
  if (!writer_) return;
  if (matrix.panels() == nullptr) return StopWriting("this backend packs in a form of its own");
  const Status status = writer_->Append(key, *matrix.panels());
  if (!status.ok()) StopWriting(status.error().message);
}

void PackedWeightsCache::Repack() {
  KVASIR_CHECK(is_unfit());
  file_.reset();
  Log(log_, LogLevel::kWarning,
      "packed weights: " + path_ + ": " + misfit_ + "; they are packed anew");
  misfit_.clear();
  StartWriting();
}

void PackedWeightsCache::Finish() {
  if (is_mapped()) {
    Log(log_, LogLevel::kInfo,
        "packed weights: mapped " + std::to_string(found_) + " matrices, " +
            Megabytes(found_bytes_) + ", from " + path_);
    return;
  }
  if (!writer_) return;
  if (!std::all_of(source_.files.begin(), source_.files.end(), IsUnchanged)) {
    return StopWriting("the model's files were changed");
  }
  const Status status = writer_->Commit();
  if (!status.ok()) return StopWriting(status.error().message);
  Log(log_, LogLevel::kInfo,
      "packed weights: wrote " + std::to_string(writer_->matrices()) + " matrices, " +
          Megabytes(writer_->size_bytes()) + ", to " + path_);
  writer_.reset();
}

}  // namespace kvasir
