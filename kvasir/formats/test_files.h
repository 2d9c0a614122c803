// What the tests of this layer share: a scratch folder and hand-made safetensors bytes.
// Deliberately not part of the library.
#ifndef KVASIR_FORMATS_TEST_FILES_H_
#define KVASIR_FORMATS_TEST_FILES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kvasir/base/bytes.h"
#include "kvasir/base/file.h"

namespace kvasir {

// A folder of its own, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = testing::TempDir() + "kvasir-formats-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string Write(std::string_view name, std::string_view contents) const {
    EXPECT_TRUE(WriteFileAtomic(File(name), contents).ok());
    return File(name);
  }
  // Entries in the folder: shows that nothing temporary is left.
  size_t FileCount() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::string path_;
};

// A file with this header and `data_bytes` bytes 0, 1, 2, ... of data.
inline std::string SafetensorsBytes(std::string_view header, size_t data_bytes) {
  BytesWriter out;
  out.Write(static_cast<uint64_t>(header.size()));
  out.WriteText(header);
  for (size_t i = 0; i < data_bytes; ++i) out.Write(static_cast<uint8_t>(i));
  return out.Take();
}

}  // namespace kvasir

#endif  // KVASIR_FORMATS_TEST_FILES_H_
