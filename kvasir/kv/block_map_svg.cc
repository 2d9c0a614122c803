#include "kvasir/kv/block_map_svg.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

constexpr int kSquare = 9;
constexpr int kPitch = 11;
constexpr int kLine = 14;
constexpr int kLabelWidth = 330;
constexpr int kSquaresPerLine = 96;
constexpr int kLeastColumns = 12;  // room for the legend
constexpr int kMargin = 16;

// Distinct in hue and, for most colour-blind readers, in lightness (after Okabe and Ito).
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                 "#56b4e9", "#d55e00", "#7f7f7f", "#b0a000"};
// How many sequences share a block, from the palest shade on.
constexpr std::array<const char*, 3> kOpacity = {"0.35", "0.65", "1"};
constexpr std::array<const char*, 3> kShareNames = {"one sequence", "two", "three or more"};

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are not allowed in XML at all.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string SizeText(uint64_t bytes) {
  char text[32];
  if (bytes < (uint64_t{1} << 20)) {
    std::snprintf(text, sizeof(text), "%.1f KiB", static_cast<double>(bytes) / 1024);
  } else {
    std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1024 * 1024));
  }
  return text;
}

// What a square shows.
struct Square {
  size_t colour = 0;
  size_t shade = 0;
  int64_t index = 0;  // of the block; checkpoints: its position
  friend bool operator==(const Square&, const Square&) = default;
};

// Layers of one sequence whose squares are the same.
struct Group {
  std::string kind;
  std::vector<int> layers;
  std::vector<Square> squares;
  uint64_t bytes = 0;
};

class Drawing {
 public:
  explicit Drawing(const KvBlockMap& map) : map_(map), references_(map.References()) {}

  std::string Draw() {
    for (const KvBlockMap::Sequence& sequence : map_.sequences) DrawSequence(sequence);
    DrawLegend();
    const std::string width = std::to_string(kMargin * 2 + kLabelWidth + columns_ * kPitch);
    const std::string height = std::to_string(y_ + kMargin);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
           "\" viewBox=\"0 0 " + width + " " + height +
           "\" font-family=\"monospace\" font-size=\"11\">\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
           body_ + "</svg>\n";
  }

 private:
  size_t ColourOf(const std::string& codec) {
    return colours_.emplace(codec, colours_.size()).first->second;
  }

  Square MakeSquare(const KvBlockMap::List& list, uint32_t number, int64_t index) {
    std::string codec = "state";
    if (list.part != KvBlockMap::Part::kState) codec = CodecsText(map_.LayoutOf(list, index));
    const auto shares = static_cast<size_t>(std::clamp(references_[number], 1, 3) - 1);
    return {ColourOf(codec), shares, index};
  }

  std::vector<Square> SquaresOf(const KvBlockMap::List& list, Position end) {
    const bool is_state = list.part == KvBlockMap::Part::kState;
    std::vector<Square> squares;
    for (size_t i = 0; i < list.head.size(); ++i) {
      const int64_t index = is_state ? end : list.head_first + static_cast<int64_t>(i);
      squares.push_back(MakeSquare(list, list.head[i], index));
    }
    for (size_t i = 0; i < list.blocks.size(); ++i) {
      const int64_t index =
          is_state ? list.positions[i] : list.first_block + static_cast<int64_t>(i);
      squares.push_back(MakeSquare(list, list.blocks[i], index));
    }
    return squares;
  }

  std::vector<Group> GroupsOf(const KvBlockMap::Sequence& sequence) {
    std::vector<Group> groups;
    for (const KvBlockMap::List& list : sequence.lists) {
      std::string kind = "state";
      if (list.part != KvBlockMap::Part::kState) {
        kind = map_.spec.layers[static_cast<size_t>(list.layer)].retention.name();
      }
      if (list.part == KvBlockMap::Part::kRecent) kind = "recent copies";
      std::vector<Square> squares = SquaresOf(list, sequence.end);
      auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& known) {
        return known.kind == kind && known.squares == squares;
      });
      if (group == groups.end()) {
        groups.push_back({kind, {}, std::move(squares)});
        group = groups.end() - 1;
      }
      group->layers.push_back(list.layer);
      group->bytes += map_.BytesOf(list, references_).all;
    }
    return groups;
  }

  void Text(int x, const std::string& text, const char* extra = "") {
    body_ += "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y_ + kSquare) + "\"" +
             extra + ">" + Escaped(text) + "</text>\n";
  }

  void Rect(int x, size_t colour, size_t shade, const std::string& title) {
    body_ += "<rect x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y_) + "\" width=\"" +
             std::to_string(kSquare) + "\" height=\"" + std::to_string(kSquare) + "\" fill=\"" +
             kColours[colour % kColours.size()] + "\" fill-opacity=\"" + kOpacity[shade] +
             "\" stroke=\"" + kColours[colour % kColours.size()] + "\"><title>" + Escaped(title) +
             "</title></rect>\n";
  }

  void DrawSequence(const KvBlockMap::Sequence& sequence) {
    const KvBlockMap::Bytes bytes = map_.BytesOf(sequence, references_);
    Text(kMargin,
         sequence.name + " [" + std::to_string(sequence.begin) + ", " +
             std::to_string(sequence.end) + "): " + SizeText(bytes.all) + ", " +
             SizeText(bytes.exclusive) + " of it alone",
         " font-weight=\"bold\"");
    y_ += kLine + 2;
    for (const Group& group : GroupsOf(sequence)) DrawGroup(group);
    y_ += kLine / 2;
  }

  // A block stands in the column of its index, so that layers can be compared; lines without blocks
  // are left out. States stand one after the other.
  void DrawGroup(const Group& group) {
    Text(kMargin + 8, LayersText(group.layers) + " " + group.kind + ", " + SizeText(group.bytes));
    const bool is_state = group.kind == "state";
    int64_t last_line = -1;
    for (size_t i = 0; i < group.squares.size(); ++i) {
      const Square& square = group.squares[i];
      const int64_t place = is_state ? static_cast<int64_t>(i) : square.index;
      const int64_t line = place / kSquaresPerLine;
      if (last_line >= 0 && line != last_line) y_ += kPitch;
      if (line > 0 && line != last_line) {
        Text(kMargin + kLabelWidth - 6, std::to_string(line * kSquaresPerLine),
             " text-anchor=\"end\" fill=\"gray\"");
      }
      last_line = line;
      const auto column = static_cast<int>(place % kSquaresPerLine);
      columns_ = std::max(columns_, column + 1);
      Rect(kMargin + kLabelWidth + column * kPitch, square.colour, square.shade,
           (is_state ? "position " : "block ") + std::to_string(square.index) + ", " +
               kShareNames[square.shade]);
    }
    y_ += kLine;
  }

  void DrawLegend() {
    y_ += kLine / 2;
    for (const auto& [codec, colour] : colours_) {
      Rect(kMargin, colour, 2, codec);
      Text(kMargin + kLine, codec);
      y_ += kLine;
    }
    int x = kMargin;
    for (size_t shade = 0; shade < kOpacity.size(); ++shade) {
      Rect(x, 0, shade, kShareNames[shade]);
      Text(x + kLine, kShareNames[shade]);
      x += 130;
    }
    y_ += kLine;
    uint64_t total = 0;
    for (const uint64_t bytes : map_.block_bytes) total += bytes;
    Text(kMargin, std::to_string(map_.block_bytes.size()) + " blocks, " + SizeText(total) +
                      "; a block is 64 rows of one layer");
    y_ += kLine;
  }

  const KvBlockMap& map_;
  std::vector<int> references_;
  std::map<std::string, size_t> colours_;
  std::string body_;
  int columns_ = kLeastColumns;
  int y_ = kMargin;
};

}  // namespace

std::string BlockMapSvg(const KvBlockMap& map) { return Drawing(map).Draw(); }

}  // namespace kvasir
