// A folder for swapped caches, and what can happen to the nameless files in it.
// Deliberately by /proc, which is the only way to them.
#ifndef KVASIR_TESTS_SUPPORT_SWAP_FOLDER_H_
#define KVASIR_TESTS_SUPPORT_SWAP_FOLDER_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>

namespace kvasir {

class SwapFolder {
 public:
  SwapFolder() {
    path_ = testing::TempDir() + "kvasir_swap_XXXXXX";
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~SwapFolder() { Remove(); }
  SwapFolder(const SwapFolder&) = delete;
  SwapFolder& operator=(const SwapFolder&) = delete;

  const std::string& path() const { return path_; }
  void Remove() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  // Overwrites bytes from `offset` on in each open file that has them; returns how many have.
  int ChangeFiles(off_t offset) {
    static constexpr char kOther[16] = "not what it was";
    return ForEachFile([offset](int fd) {
      return lseek(fd, 0, SEEK_END) >= offset + off_t{sizeof(kOther)} &&
             pwrite(fd, kOther, sizeof(kOther), offset) == off_t{sizeof(kOther)};
    });
  }
  int TruncateFiles(off_t bytes) {
    return ForEachFile([bytes](int fd) { return ftruncate(fd, bytes) == 0; });
  }

 private:
  int ForEachFile(const std::function<bool(int fd)>& visit) const {
    int files = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      const std::string link = "/proc/self/fd/" + std::to_string(fd);
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(link, error).string();
      if (error || target.rfind(path_, 0) != 0) continue;
      const int own = open(link.c_str(), O_RDWR | O_CLOEXEC);
      if (own < 0) continue;
      files += visit(own);
      close(own);
    }
    return files;
  }

  std::string path_;
};

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_SWAP_FOLDER_H_
