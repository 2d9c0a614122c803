#include "kvasir/convert/modelfile.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "kvasir/formats/utf8_check.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors write it
constexpr std::string_view kTriple = "\"\"\"";
constexpr std::array<std::string_view, 4> kElsewhere = {"ADAPTER", "MESSAGE", "LICENSE",
                                                        "REQUIRES"};

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string Upper(std::string_view word) {
  std::string upper(word.substr(0, 40));
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  Result<Modelfile> Read() {
    Modelfile file;
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
    while (!rest_.empty()) {
      const std::string_view line = Trimmed(NextLine());
      if (line.empty() || line.front() == '#') continue;
      const size_t end = std::min(line.find_first_of(kBlank), line.size());
      KVASIR_TRY_OK(ReadCommand(Upper(line.substr(0, end)), Trimmed(line.substr(end)), &file));
      if (!is_utf8_) return Wrong("is no UTF-8; save the file as UTF-8");
    }
    if (file.from.empty()) return {ErrorCode::kCorrupt, "no FROM line says which model it is"};
    return file;
  }

 private:
  std::string_view NextLine() {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    is_utf8_ = is_utf8_ && IsValidUtf8(line);
    return line;
  }

  Error Wrong(const std::string& what) const {
    return {ErrorCode::kCorrupt, "line " + std::to_string(line_) + ": " + what};
  }

  // The value that begins with `first`, which is the rest of the command's line.
  Result<std::string> Value(const std::string& command, std::string_view first) {
    if (first.starts_with(kTriple)) return Block(first.substr(kTriple.size()));
    if (first.empty()) return Wrong(command + " needs a value");
    if (first.front() != '"') return std::string(first);
    if (first.size() < 2 || first.back() != '"') return Wrong("a quote is not closed");
    return std::string(first.substr(1, first.size() - 2));
  }

  Result<std::string> Block(std::string_view first) {
    const size_t opened = line_;
    std::string text;
    std::string_view line = first;
    while (true) {
      const size_t end = line.find(kTriple);
      if (end != std::string_view::npos) {
        text += line.substr(0, end);
        if (Trimmed(line.substr(end + kTriple.size())).empty()) return text;
        return Wrong("something follows \"\"\"");
      }
      text += line;
      if (rest_.empty()) break;
      text += '\n';
      line = NextLine();
    }
    line_ = opened;
    return Wrong("\"\"\" is not closed");
  }

  Status ReadCommand(const std::string& command, std::string_view first, Modelfile* file) {
    if (command == "PARAMETER") {
      const size_t end = std::min(first.find_first_of(kBlank), first.size());
      const std::string_view value = Trimmed(first.substr(end));
      if (end == 0 || value.empty()) return Wrong("PARAMETER needs a name and a value");
      const size_t line = line_;
      KVASIR_TRY(std::string text, Value(command, value));
      file->parameters.push_back({std::string(first.substr(0, end)), std::move(text), line});
      return {};
    }
    std::string* const target = command == "FROM"       ? &file->from
                                : command == "DRAFT"    ? &file->draft
                                : command == "TEMPLATE" ? &file->chat_template
                                                        : nullptr;
    if (target != nullptr) {
      KVASIR_TRY(*target, Value(command, first));
      if (!target->empty()) return {};
      return Wrong(command + " is empty; leave the line out");
    }
    if (command == "SYSTEM") {
      KVASIR_TRY(file->system, Value(command, first));
      return {};
    }
    if (std::find(kElsewhere.begin(), kElsewhere.end(), command) != kElsewhere.end()) {
      return {ErrorCode::kUnsupported, "line " + std::to_string(line_) + ": " + command +
                                           " has no meaning here; remove the line"};
    }
    return Wrong("'" + command +
                 "' is no command; there are FROM, DRAFT, PARAMETER, TEMPLATE and SYSTEM");
  }

  std::string_view rest_;
  size_t line_ = 0;
  bool is_utf8_ = true;  // what was read so far
};

}  // namespace

Result<Modelfile> Modelfile::Parse(std::string_view text) { return Reader(text).Read(); }

}  // namespace kvasir
