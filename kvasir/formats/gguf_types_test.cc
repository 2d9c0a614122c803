// Every decoder against the reference package's (tools/goldens/make_gguf.py), bit for bit, and
// against blocks worked out by hand.
#include "kvasir/formats/gguf_types.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kvasir/formats/safetensors.h"

namespace kvasir {
namespace {

const GgufType* TypeNamed(std::string_view name) {
  for (const GgufType& type : AllGgufTypes()) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

TEST(GgufTypes, DecodeToTheReferencesBits) {
  const auto file = SafetensorsFile::Open(std::string(KVASIR_SOURCE_DIR) +
                                          "/testdata/formats/gguf_blocks.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  int types = 0;
  for (const auto& [name, raw] : file->tensors()) {
    if (!name.ends_with(".raw")) continue;
    const std::string type_name = name.substr(0, name.rfind('.'));
    const GgufType* type = TypeNamed(type_name);
    ASSERT_NE(type, nullptr) << type_name;
    ASSERT_NE(type->decode, nullptr) << type_name;
    ++types;
    const TensorView& wanted = *file->Find(type_name + ".decoded");
    std::vector<float> expected(static_cast<size_t>(wanted.elements()));
    ReadFloats(wanted, 0, wanted.elements(), expected.data());
    std::vector<float> block(static_cast<size_t>(type->block_elements));
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t in_block = i % block.size();
      if (in_block == 0) {
        const size_t at = i / block.size() * static_cast<size_t>(type->block_bytes);
        type->decode(raw.data + at, block.data());
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(block[in_block]), std::bit_cast<uint32_t>(expected[i]))
          << type_name << " element " << i << ": " << block[in_block] << ", the reference has "
          << expected[i];
    }
  }
  EXPECT_EQ(types, 16);
}

// What a packed format keeps of a block is worth what the block is.
TEST(GgufTypes, CodesHaveTheValuesOfTheirBlocks) {
  std::mt19937 random(7);
  int types = 0;
  for (const GgufType& type : AllGgufTypes()) {
    ASSERT_EQ(type.codes != nullptr, type.decode != nullptr && IsQuantized(type.stored_format))
        << type.name;
    if (type.codes == nullptr) continue;
    ++types;
    const int64_t elements = type.block_elements;
    auto packed = *PackedMatrix::Allocate(1, elements, type.stored_format, type.affine);
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
      for (std::byte& byte : block) byte = static_cast<std::byte>(random() & 0xFF);
      // Exponents that leave every value finite: only MXFP4's scale is a single byte.
      if (type.name == "MXFP4") block[0] = static_cast<std::byte>(random() % 250);
      if (type.is_kept != nullptr && !type.is_kept(block.data())) continue;
      std::vector<float> wanted(static_cast<size_t>(elements));
      type.decode(block.data(), wanted.data());
      CodedRow row;
      row.codes.resize(static_cast<size_t>(elements));
      row.scales.resize(2);
      row.biases.resize(2);
      row.sub_scales.resize(16);
      row.sub_mins.resize(16);
      type.codes(block.data(), {row.codes.data(), row.scales.data(), row.biases.data(),
                                row.sub_scales.data(), row.sub_mins.data()});
      packed.SetCodedRow(0, row);
      std::vector<float> kept(wanted.size());
      packed.GetRow(0, kept.data());
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (!std::isfinite(wanted[i])) continue;  // an f16 scale of random bits may be infinite
        ASSERT_EQ(kept[i], wanted[i]) << type.name << " trial " << trial << " element " << i;
      }
    }
  }
  EXPECT_EQ(types, 18);
}

std::vector<float> Decode(std::string_view name, std::vector<std::pair<int, int>> bytes) {
  const GgufType* type = TypeNamed(name);
  std::vector<std::byte> block(static_cast<size_t>(type->block_bytes));
  for (const auto& [at, value] : bytes) {
    block[static_cast<size_t>(at)] = static_cast<std::byte>(value);
  }
  std::vector<float> out(static_cast<size_t>(type->block_elements));
  type->decode(block.data(), out.data());
  return out;
}

TEST(GgufTypes, BlocksByHand) {
  const auto q4 = Decode("Q4_0", {{1, 0x3C}, {2, 0xF0}});  // d = 1
  EXPECT_EQ(q4[0], -8.0f);
  EXPECT_EQ(q4[16], 7.0f);
  EXPECT_EQ(q4[1], -8.0f);
  EXPECT_EQ(Decode("Q8_0", {{1, 0x38}, {5, 0x80}})[3], -64.0f);  // d = 0.5
  const auto mxfp4 = Decode("MXFP4", {{0, 128}, {1, 0x72}});
  EXPECT_EQ(mxfp4[0], 2.0f);
  EXPECT_EQ(mxfp4[16], 12.0f);
  const auto nvfp4 =
      Decode("NVFP4", {{0, 0x38}, {1, 0xC0}, {2, 0x7F}, {4, 0x72}, {13, 0xF0}, {20, 0x77}});
  EXPECT_EQ(nvfp4[0], 1.0f);
  EXPECT_EQ(nvfp4[8], 6.0f);
  EXPECT_EQ(nvfp4[25], -12.0f);
  EXPECT_EQ(nvfp4[32], 0.0f);
  const auto q1 = Decode("Q1_0", {{1, 0x3C}, {3, 0x04}});
  EXPECT_EQ(q1[9], -1.0f);
  EXPECT_EQ(q1[10], 1.0f);
  const auto q2 = Decode("Q2_0", {{1, 0x3C}, {3, 0xE4}});
  EXPECT_EQ(std::vector(q2.begin() + 4, q2.begin() + 8), (std::vector<float>{-1, 0, 1, 2}));
  const auto q4k = Decode("Q4_K", {{1, 0x3C}, {3, 0x3C}, {4, 0x41}, {8, 0x82}, {12, 0x53}});
  EXPECT_EQ(q4k[0], -2.0f);
  EXPECT_EQ(q4k[128], -37.0f);
  const auto q6k = Decode("Q6_K", {{209, 0x3C}, {192, 2}, {0, 0x05}, {128, 0x03}});
  EXPECT_EQ(q6k[0], 42.0f);
  EXPECT_EQ(q6k[1], -64.0f);
}

// Code 1 is 2d - d, and 2d must be an f16.
TEST(GgufTypes, Q1_0IsKeptUnlessItsScaleIsTooLarge) {
  const GgufType& type = *FindGgufType(41);
  std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
  const auto is_kept = [&](uint16_t scale) {
    std::memcpy(block.data(), &scale, sizeof(scale));
    return type.is_kept(block.data());
  };
  for (const int kept : {0x0000, 0x0001, 0x3C00, 0x77FF, 0xF7FF}) {
    EXPECT_TRUE(is_kept(static_cast<uint16_t>(kept))) << kept;
  }
  for (const int other : {0x7800, 0xF800, 0x7C00, 0x7E00}) {
    EXPECT_FALSE(is_kept(static_cast<uint16_t>(other))) << other;
  }
}

TEST(GgufTypes, IdsAreUniqueAndFound) {
  for (const GgufType& type : AllGgufTypes()) {
    EXPECT_EQ(FindGgufType(type.id), &type) << type.name;
    EXPECT_GT(type.block_bytes, 0);
  }
  EXPECT_EQ(FindGgufType(4), nullptr);
  EXPECT_EQ(FindGgufType(0xFFFFFFFF), nullptr);
}

}  // namespace
}  // namespace kvasir
