#include "kvasir/formats/gguf_writer.h"

#include <set>

namespace kvasir {
namespace {

constexpr uint64_t kAlignment = 32;
// What ggml's readers hold.
constexpr size_t kLongestName = 63;

constexpr uint32_t kU32 = 4;
constexpr uint32_t kI32 = 5;
constexpr uint32_t kF32 = 6;
constexpr uint32_t kBool = 7;
constexpr uint32_t kText = 8;
constexpr uint32_t kArray = 9;

template <typename T>
void Put(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Status Check(const std::vector<GgufDeclaration>& tensors) {
  std::set<std::string_view> names;
  for (const GgufDeclaration& tensor : tensors) {
    const std::string where = "tensor '" + tensor.name + "'";
    if (tensor.name.empty() || tensor.name.size() > kLongestName ||
        !names.insert(tensor.name).second) {
      return {ErrorCode::kInvalidArgument, where + ": names are unique, of 1 to 63 bytes"};
    }
    if (tensor.shape.empty() || tensor.shape.size() > 4 ||
        tensor.shape.back() % tensor.type->block_elements != 0) {
      return {ErrorCode::kInvalidArgument,
              where + " has a shape that " + std::string(tensor.type->name) + " cannot hold"};
    }
  }
  return {};
}

}  // namespace

void GgufPairs::PutText(std::string_view text) {
  Put(static_cast<uint64_t>(text.size()), &bytes_);
  bytes_ += text;
}

void GgufPairs::Begin(std::string_view key, uint32_t type) {
  ++count_;
  PutText(key);
  Put(type, &bytes_);
}

void GgufPairs::BeginArray(std::string_view key, uint32_t type, uint64_t count) {
  Begin(key, kArray);
  Put(type, &bytes_);
  Put(count, &bytes_);
}

void GgufPairs::Add(std::string_view key, std::string_view text) {
  Begin(key, kText);
  PutText(text);
}
void GgufPairs::AddU32(std::string_view key, uint32_t value) {
  Begin(key, kU32);
  Put(value, &bytes_);
}
void GgufPairs::AddI32(std::string_view key, int32_t value) {
  Begin(key, kI32);
  Put(value, &bytes_);
}
void GgufPairs::AddF32(std::string_view key, float value) {
  Begin(key, kF32);
  Put(value, &bytes_);
}
void GgufPairs::AddBool(std::string_view key, bool value) {
  Begin(key, kBool);
  Put(static_cast<uint8_t>(value), &bytes_);
}
void GgufPairs::AddTexts(std::string_view key, const std::vector<std::string>& texts) {
  BeginArray(key, kText, texts.size());
  for (const std::string& text : texts) PutText(text);
}
void GgufPairs::AddU32s(std::string_view key, const std::vector<uint32_t>& values) {
  BeginArray(key, kU32, values.size());
  for (const uint32_t value : values) Put(value, &bytes_);
}
void GgufPairs::AddI32s(std::string_view key, const std::vector<int32_t>& values) {
  BeginArray(key, kI32, values.size());
  for (const int32_t value : values) Put(value, &bytes_);
}
void GgufPairs::AddF32s(std::string_view key, const std::vector<float>& values) {
  BeginArray(key, kF32, values.size());
  for (const float value : values) Put(value, &bytes_);
}
void GgufPairs::Append(const GgufPairs& pairs) {
  bytes_ += pairs.bytes_;
  count_ += pairs.count_;
}
void GgufPairs::AddBools(std::string_view key, const std::vector<bool>& values) {
  BeginArray(key, kBool, values.size());
  for (const bool value : values) Put(static_cast<uint8_t>(value), &bytes_);
}

uint64_t GgufDeclaration::bytes() const {
  uint64_t blocks = 1;
  for (const int64_t extent : shape) blocks *= static_cast<uint64_t>(extent);
  return blocks / static_cast<uint64_t>(type->block_elements) *
         static_cast<uint64_t>(type->block_bytes);
}

Result<GgufWriter> GgufWriter::Create(const std::string& path, const GgufPairs& pairs,
                                      std::vector<GgufDeclaration> tensors) {
  const Status checked = Check(tensors);
  if (!checked.ok()) return WithContext(checked.error(), path);
  std::string head = "GGUF";
  Put(uint32_t{3}, &head);
  Put(static_cast<uint64_t>(tensors.size()), &head);
  Put(pairs.count(), &head);
  head += pairs.bytes();
  uint64_t offset = 0;
  for (const GgufDeclaration& tensor : tensors) {
    Put(static_cast<uint64_t>(tensor.name.size()), &head);
    head += tensor.name;
    Put(static_cast<uint32_t>(tensor.shape.size()), &head);
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      Put(static_cast<uint64_t>(*extent), &head);
    }
    Put(tensor.type->id, &head);
    Put(offset, &head);
    offset += Aligned(tensor.bytes());
  }
  head.resize(Aligned(head.size()), '\0');
  KVASIR_TRY(FileWriter file, FileWriter::Create(path, FileWriter::Existing::kRefuse));
  KVASIR_TRY_OK(file.Append(std::as_bytes(std::span(head))));
  return GgufWriter(std::move(file), std::move(tensors));
}

Status GgufWriter::Append(size_t index, std::span<const std::byte> bytes) {
  if (index != current_) {
    KVASIR_TRY_OK(Pad());
    if (index != current_) {
      return {ErrorCode::kInvalidArgument, file_.path() + ": tensors come in the declared order"};
    }
  }
  written_bytes_ += bytes.size();
  if (index >= tensors_.size() || written_bytes_ > tensors_[index].bytes()) {
    return {ErrorCode::kInvalidArgument, file_.path() + ": more bytes than were declared"};
  }
  return file_.Append(bytes);
}

// Ends the current tensor.
Status GgufWriter::Pad() {
  if (current_ >= tensors_.size() || written_bytes_ != tensors_[current_].bytes()) {
    return {ErrorCode::kInvalidArgument, file_.path() + ": a tensor is incomplete"};
  }
  const std::string zeros(Aligned(written_bytes_) - written_bytes_, '\0');
  ++current_;
  written_bytes_ = 0;
  return file_.Append(std::as_bytes(std::span(zeros)));
}

Status GgufWriter::Finish() {
  if (!tensors_.empty()) KVASIR_TRY_OK(Pad());
  if (current_ != tensors_.size()) {
    return {ErrorCode::kInvalidArgument, file_.path() + ": a tensor is incomplete"};
  }
  return file_.Commit();
}

}  // namespace kvasir
