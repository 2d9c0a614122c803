// PreTokenizer: cuts normalized text into the words that the model sees one by one.
// Deliberately without offsets into the original text: ids are all that leaves the tokenizer.
#ifndef KVASIR_TOKENIZER_PRE_TOKENIZER_H_
#define KVASIR_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

// Where a piece of text came from, for Metaspace's scheme "first".
enum class PieceOrigin { kTextBegin, kInside };

struct Piece {
  size_t begin = 0;  // in PieceList::text
  size_t end = 0;
  PieceOrigin origin = PieceOrigin::kInside;
};

// Pieces in order, never empty; what lies between two of them has been removed.
struct PieceList {
  // One piece, or none if `whole` is empty. REQUIRES: valid UTF-8.
  PieceList(std::string whole, PieceOrigin origin);

  std::string text;
  std::vector<Piece> pieces;
  // Steps stop adding to the text beyond this: 32 times the whole and 1 KiB. A byte-level step
  // doubles the text, so only a file made to exhaust memory gets there.
  size_t max_text_bytes;

  std::string_view View(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

// Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Reads the member "pre_tokenizer" of tokenizer.json; null gives one that changes nothing.
  // ERRORS: kCorrupt, kUnsupported, naming the field or type.
  static Result<std::unique_ptr<const PreTokenizer>> FromJson(const Json& json);

  // Cuts and rewrites every piece on its own.
  virtual void Apply(PieceList* list) const = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_PRE_TOKENIZER_H_
