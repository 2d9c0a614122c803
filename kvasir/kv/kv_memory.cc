#include "kvasir/kv/kv_memory.h"

#include <cstring>
#include <utility>

#include "kvasir/tensor/aligned_buffer.h"

namespace kvasir {
namespace {

class HostSlab final : public KvMemory::Slab {
 public:
  explicit HostSlab(AlignedBuffer buffer) : buffer_(std::move(buffer)) {}
  std::byte* data() const override { return buffer_.data(); }

 private:
  AlignedBuffer buffer_;
};

class HostMemory final : public KvMemory {
 public:
  Result<std::unique_ptr<Slab>> Allocate(size_t size_bytes) override {
    KVASIR_TRY(AlignedBuffer buffer, AlignedBuffer::Allocate(size_bytes));
    return std::unique_ptr<Slab>(std::make_unique<HostSlab>(std::move(buffer)));
  }
  void Copy(std::byte* to, const std::byte* from, size_t size_bytes) override {
    std::memcpy(to, from, size_bytes);
  }
  void Zero(std::byte* to, size_t size_bytes) override { std::memset(to, 0, size_bytes); }
};

}  // namespace

std::unique_ptr<KvMemory> KvMemory::Host() { return std::make_unique<HostMemory>(); }

}  // namespace kvasir
