// What tests of conversions share: a checkpoint of the repository as another folder or file, and
// what the model in either says.
#ifndef KVASIR_CONVERT_CONVERT_TEST_UTIL_H_
#define KVASIR_CONVERT_CONVERT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/convert/convert_model.h"
#include "kvasir/convert/folder_builder.h"
#include "kvasir/convert/write_gguf.h"
#include "kvasir/formats/gguf.h"
#include "tests/support/tiny_model.h"

namespace kvasir {

// Of a path from the repository's root.
inline std::string Path(const std::string& name) {
  return std::string(KVASIR_SOURCE_DIR) + "/" + name;
}

// As `kvasir convert` into a folder.
inline Status Convert(const std::string& source, const std::string& type, const std::string& out,
                      uint64_t shard_bytes = uint64_t{2} << 30, int group_size = 0) {
  KVASIR_TRY(const ModelSource model, ModelSource::Open(source));
  WriteOptions options;
  KVASIR_TRY(options.plan, PlanFor(model, type, group_size));
  options.plan.shard_bytes = shard_bytes;
  options.threads = 2;
  KVASIR_TRY(FolderBuilder builder, FolderBuilder::Create(out));
  return builder.Finish(WriteModelFolder(model, builder.partial(), options));
}

// As `kvasir convert` into a GGUF file.
inline Status Write(const std::string& source, const std::string& type, const std::string& out) {
  KVASIR_TRY(const ModelSource model, ModelSource::Open(source));
  return WriteGguf(model, out, {.type = type, .threads = 2, .progress = {}});
}

// Of any path; TinyModel's are relative to the repository.
inline std::vector<float> Logits(const std::string& path, std::optional<WeightFormat> weights,
                                 int tokens = 60) {
  const std::string relative = std::filesystem::relative(path, KVASIR_SOURCE_DIR).string();
  TinyModel tiny({.folder = relative, .threads = 2, .isa = {}, .weights = weights});
  KvSequence sequence = tiny.NewSequence();
  return tiny.Feed(sequence, RandomTokens(tokens, 256, 11));
}

// But for copies of the model's embeddings and head beside a layer that drafts, which are not
// written.
inline std::vector<std::string> NamesWithoutCopies(const GgufFile& file) {
  std::vector<std::string> names = file.names();
  std::erase_if(names, [](const std::string& name) {
    return name.find(".nextn.embed_tokens.") != std::string::npos ||
           name.find(".nextn.shared_head_head.") != std::string::npos;
  });
  return names;
}

// What `wanted` has, `written` has as well, of the same numbers (rates of delta nets up to another
// exponential).
inline void ExpectSameTensors(const GgufFile& written, const GgufFile& wanted) {
  for (const std::string& name : NamesWithoutCopies(wanted)) {
    const GgufEntry* const entry = written.Find(name);
    ASSERT_NE(entry, nullptr) << name;
    const WeightTensor ours = ValueOrDie(written.Get(name, entry->shape));
    const WeightTensor theirs = ValueOrDie(wanted.Get(name, wanted.Find(name)->shape));
    const auto columns = static_cast<size_t>(theirs.shape.back());
    ASSERT_EQ(ours.shape.back(), theirs.shape.back()) << name;
    ASSERT_EQ(RowCount(ours.shape), RowCount(theirs.shape)) << name;
    std::vector<float> a(columns), b(columns);
    for (int64_t row = 0; row < RowCount(theirs.shape); ++row) {
      ours.read_row(row, a.data());
      theirs.read_row(row, b.data());
      for (size_t i = 0; i < columns; ++i) {
        const float tolerance = name.ends_with("ssm_a") ? 1e-6f * std::fabs(b[i]) : 0;
        ASSERT_NEAR(a[i], b[i], tolerance) << name << " " << row << " " << i;
      }
    }
  }
}

}  // namespace kvasir

#endif  // KVASIR_CONVERT_CONVERT_TEST_UTIL_H_
