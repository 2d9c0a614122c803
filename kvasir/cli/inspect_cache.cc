#include "kvasir/cli/inspect_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/printable.h"
#include "kvasir/formats/safetensors.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/block_map_svg.h"
#include "kvasir/kv/snapshot_file_index.h"
#include "kvasir/kvio/mlx_prompt_cache.h"

namespace kvasir {
namespace {

// Metadata can hold whole tokenizer configurations.
constexpr size_t kMaxShownText = 60;

// On one line.
std::string Shown(std::string text) {
  if (text.size() > kMaxShownText) text = text.substr(0, kMaxShownText) + "...";
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Printable(std::move(text));
}

std::string Codecs(const KvCodec& key, const KvCodec& value) {
  return key == value ? key.name() : key.name() + " / " + value.name();
}

// "[0, 4) and [960, 1024)"
std::string BlocksText(const KvBlockMap::List& list) {
  const auto range = [](int64_t first, size_t count) {
    return std::string("[") + std::to_string(first) + ", " +
           std::to_string(first + static_cast<int64_t>(count)) + ")";
  };
  if (list.part == KvBlockMap::Part::kState) {
    return std::to_string(list.head.size()) + " at the end, " + std::to_string(list.blocks.size()) +
           " at checkpoints";
  }
  const std::string rows = range(list.first_block, list.blocks.size());
  return list.head.empty() ? rows : range(list.head_first, list.head.size()) + " and " + rows;
}

std::string KindText(const KvBlockMap& map, const KvBlockMap::List& list) {
  const KvLayerSpec& layer = map.spec.layers[static_cast<size_t>(list.layer)];
  if (list.part == KvBlockMap::Part::kState) {
    return "recurrent state of " + FormatBytes(layer.state_bytes);
  }
  const KvLayout& layout = layer.layout;
  if (list.part == KvBlockMap::Part::kRecent) {
    return "the last " + std::to_string(layout.dense_recent) + " rows once more in " +
           layout.dense_codec.name();
  }
  std::string text = layer.retention.name() + ", " + Codecs(layout.key_codec, layout.value_codec);
  if (layout.dense_start > 0) {
    text +=
        " (" + layout.dense_codec.name() + " below row " + std::to_string(layout.dense_start) + ")";
  }
  return text;
}

// "1024 of 5000 positions, 0 to 4999"
std::string KeptText(const KvBlockMap::Budget& budget) {
  const auto [least, most] = std::minmax_element(budget.positions.begin(), budget.positions.end());
  return std::to_string(budget.positions.size()) + " of the first " + std::to_string(budget.until) +
         " positions, from " + std::to_string(*least) + " to " + std::to_string(*most);
}

// Layers of a sequence that differ in nothing but their number.
struct LayerGroup {
  std::vector<int> layers;
  std::string kind;
  std::string blocks;
  KvBlockMap::Bytes bytes;
};

std::vector<LayerGroup> GroupsOf(const KvBlockMap& map, const KvBlockMap::Sequence& sequence,
                                 const std::vector<int>& references) {
  std::vector<LayerGroup> groups;
  for (const KvBlockMap::List& list : sequence.lists) {
    LayerGroup next = {
        {list.layer}, KindText(map, list), BlocksText(list), map.BytesOf(list, references)};
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& group) {
      return group.kind == next.kind && group.blocks == next.blocks;
    });
    if (same == groups.end()) {
      groups.push_back(std::move(next));
      continue;
    }
    same->layers.push_back(list.layer);
    same->bytes.all += next.bytes.all;
    same->bytes.exclusive += next.bytes.exclusive;
  }
  return groups;
}

void DescribeSequence(const KvBlockMap& map, const KvBlockMap::Sequence& sequence,
                      const std::vector<int>& references, CacheReport* report, Json* sequences) {
  const KvBlockMap::Bytes bytes = map.BytesOf(sequence, references);
  Json json;
  json.Set("name", sequence.name);
  json.Set("begin", sequence.begin);
  json.Set("end", sequence.end);
  json.Set("floor", sequence.floor);
  json.Set("tokens", static_cast<uint64_t>(sequence.tokens.size()));
  json.Set("bytes", bytes.all);
  json.Set("exclusive_bytes", bytes.exclusive);
  std::string& text = report->text;
  text += "sequence '" + Shown(sequence.name) + "': positions [" + std::to_string(sequence.begin) +
          ", " + std::to_string(sequence.end) + "), " + FormatBytes(bytes.all) + ", " +
          FormatBytes(bytes.exclusive) + " of it alone" +
          (sequence.tokens.empty() ? "" : ", with its tokens") + "\n";
  Json groups = Json::Array();
  for (const LayerGroup& group : GroupsOf(map, sequence, references)) {
    text += "  " + LayersText(group.layers) + ": " + group.kind + "; blocks " + group.blocks +
            ", " + FormatBytes(group.bytes.all) + ", " + FormatBytes(group.bytes.exclusive) +
            " alone\n";
    Json entry;
    entry.Set("layers", LayersText(group.layers));
    entry.Set("kind", group.kind);
    entry.Set("blocks", group.blocks);
    entry.Set("bytes", group.bytes.all);
    entry.Set("exclusive_bytes", group.bytes.exclusive);
    groups.Append(std::move(entry));
  }
  json.Set("layers", std::move(groups));
  Json all_kept = Json::Array();
  for (const KvBlockMap::Budget& budget : sequence.budgets) {
    if (budget.until == 0) continue;
    text +=
        "  budget of layer " + std::to_string(budget.layer) + " keeps " + KeptText(budget) + "\n";
    Json kept;
    kept.Set("layer", budget.layer);
    kept.Set("until", budget.until);
    kept.Set("rows", static_cast<uint64_t>(budget.positions.size()));
    all_kept.Append(std::move(kept));
  }
  json.Set("kept", std::move(all_kept));
  sequences->Append(std::move(json));
}

void DescribeMetadata(const std::map<std::string, std::string>& metadata, CacheReport* report) {
  Json json = Json::Object();
  for (const auto& [key, value] : metadata) {
    report->text += "metadata " + Shown(key) + ": " + Shown(value) + "\n";
    json.Set(key, value);
  }
  report->json.Set("metadata", std::move(json));
}

Status FirstDamage(const KvSnapshotIndex& index, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < index.places.size(); ++i) KVASIR_TRY_OK(index.CheckBlock(bytes, i));
  return {};
}

Result<CacheReport> DescribeSnapshot(std::span<const std::byte> bytes, BlockMapPicture picture) {
  KVASIR_TRY(const KvSnapshotIndex index, KvSnapshotIndex::Parse(bytes));
  CacheReport report;
  report.damage = FirstDamage(index, bytes);
  const std::string checksums = report.damage.ok() ? "right" : report.damage.error().message;
  report.json.Set("format", "kvasir snapshot");
  report.json.Set("version", static_cast<int64_t>(index.version));
  report.json.Set("file_bytes", index.file_bytes);
  report.json.Set("blocks", static_cast<uint64_t>(index.places.size()));
  report.json.Set("checksums", checksums);
  report.text = "KV snapshot, version " + std::to_string(index.version) + ": " +
                std::to_string(index.map.sequences.size()) + " sequences, " +
                std::to_string(index.places.size()) + " blocks, " + FormatBytes(index.file_bytes) +
                "\nchecksums: " + checksums + "\n";
  DescribeMetadata(index.map.metadata, &report);
  const std::vector<int> references = index.map.References();
  Json sequences = Json::Array();
  for (const KvBlockMap::Sequence& sequence : index.map.sequences) {
    DescribeSequence(index.map, sequence, references, &report, &sequences);
  }
  report.json.Set("sequences", std::move(sequences));
  if (picture == BlockMapPicture::kSvg) report.svg = BlockMapSvg(index.map);
  return report;
}

std::string_view KindName(MlxLayerCache::Kind kind) {
  if (kind == MlxLayerCache::Kind::kAll) return "KVCache";
  return kind == MlxLayerCache::Kind::kRotating ? "RotatingKVCache" : "QuantizedKVCache";
}

// The picture shows the blocks that an import would take.
Result<std::string> ImportedSvg(const MlxCache& cache, uint64_t data_bytes) {
  KvPoolOptions options;
  // Blocks are at most one longer than their rows, and slabs at most double.
  options.budget_bytes = 4 * data_bytes + (size_t{1} << 30);
  KvPool pool(std::move(options));
  KVASIR_TRY(MlxPromptCache imported, ImportMlxCache(&pool, cache));
  const std::vector<NamedSnapshot> snapshots = {{"prompt cache", imported.snapshot, {}}};
  KVASIR_TRY(const NumberedBlocks numbered, NumberBlocks(snapshots));
  return BlockMapSvg(numbered.map);
}

Result<CacheReport> DescribeMlx(const SafetensorsFile& file, BlockMapPicture picture) {
  KVASIR_TRY(const MlxCache cache, ParseMlxCache(file.tensors(), file.metadata()));
  const bool scalars = cache.version == MlxCacheVersion::kScalars;
  CacheReport report;
  report.json.Set("format", "mlx-lm prompt cache");
  report.json.Set("version", scalars ? "scalars" : "meta_state");
  report.json.Set("tokens", cache.layers[0].offset);
  report.text =
      "mlx-lm prompt cache (" + std::string(scalars ? "0.32.1 and later" : "up to 0.32.0") +
      "): " + std::to_string(cache.layers.size()) + " caches at position " +
      std::to_string(cache.layers[0].offset) + ", " + FormatBytes(file.data_bytes()) + "\n";
  DescribeMetadata(cache.metadata, &report);
  Json layers = Json::Array();
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    const MlxLayerCache& layer = cache.layers[i];
    std::string text = std::string(KindName(layer.kind)) + ", " +
                       std::to_string(layer.layout.kv_heads) + " heads of " +
                       std::to_string(layer.layout.key_dim) + ", " +
                       Codecs(layer.layout.key_codec, layer.layout.value_codec) + ", " +
                       std::to_string(layer.order.size()) + " rows";
    if (layer.kind == MlxLayerCache::Kind::kRotating) {
      text +=
          ", max_size " + std::to_string(layer.max_size) + ", keep " + std::to_string(layer.keep);
    }
    report.text += "  cache " + std::to_string(i) + ": " + text + "\n";
    layers.Append(std::move(text));
  }
  report.json.Set("caches", std::move(layers));
  if (picture == BlockMapPicture::kSvg) {
    KVASIR_TRY(report.svg, ImportedSvg(cache, file.data_bytes()));
  }
  return report;
}

}  // namespace

bool IsCacheFile(const std::string& path) {
  if (!FileExists(path)) return false;
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return false;
  if (KvSnapshotIndex::Recognises(file->bytes())) return true;
  const auto tensors = SafetensorsFile::Open(path);
  return tensors.ok() && IsMlxCache(tensors->metadata());
}

Result<CacheReport> DescribeCache(const std::string& path, BlockMapPicture picture) {
  KVASIR_TRY(const MappedFile file, MappedFile::Open(path));
  if (KvSnapshotIndex::Recognises(file.bytes())) {
    auto report = DescribeSnapshot(file.bytes(), picture);
    if (!report.ok()) return WithContext(report.error(), path);
    if (!report->damage.ok()) report->damage = WithContext(report->damage.error(), path);
    return report;
  }
  KVASIR_TRY(const SafetensorsFile tensors, SafetensorsFile::Open(path));
  auto report = DescribeMlx(tensors, picture);
  if (!report.ok()) return WithContext(report.error(), path);
  return report;
}

}  // namespace kvasir
