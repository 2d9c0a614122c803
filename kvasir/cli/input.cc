#include "kvasir/cli/input.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "kvasir/base/system_error.h"

namespace kvasir {
namespace {

Result<std::string> ReadStream(std::FILE* stream, const std::string& name, size_t most_bytes) {
  std::string text;
  std::array<char, 65536> piece;
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), stream)) {
    text.append(piece.data(), size);
    if (text.size() <= most_bytes) continue;
    return {ErrorCode::kResourceExhausted, name + ": has more than the " +
                                               std::to_string(most_bytes) +
                                               " bytes that are read of such a text"};
  }
  if (std::ferror(stream) != 0) return SystemError(name, "read");
  return text;
}

}  // namespace

Result<std::string> ReadText(const std::string& path, size_t most_bytes) {
  if (path == "-") return ReadStream(stdin, "standard input", most_bytes);
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  const bool is_stream = type == std::filesystem::file_type::fifo ||
                         type == std::filesystem::file_type::character ||
                         type == std::filesystem::file_type::socket;
  if (!is_stream) return ReadFile(path, most_bytes);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"),
                                                               std::fclose);
  if (stream == nullptr) return SystemError(path, "open");
  return ReadStream(stream.get(), path, most_bytes);
}

}  // namespace kvasir
