// Modelfile: the lines of a model file that apply here: FROM, DRAFT, PARAMETER, TEMPLATE, SYSTEM.
// Deliberately reads no other file: paths stay as written.
//
//   # a comment
//   FROM ./model
//   DRAFT ./small-model
//   PARAMETER temperature 0.7
//   SYSTEM """You are
//   brief."""
//
// Commands in any case, one a line; a value is the rest of the line, in double quotes if it begins
// with one, or everything between """ and """. The last FROM, DRAFT, TEMPLATE and SYSTEM count.
#ifndef KVASIR_CONVERT_MODELFILE_H_
#define KVASIR_CONVERT_MODELFILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir {

struct Modelfile {
  struct Parameter {
    std::string name;
    std::string text;
    size_t line = 0;  // 0: of no file

    bool operator==(const Parameter&) const = default;
  };

  std::string from;
  std::string draft;                  // empty: none
  std::vector<Parameter> parameters;  // as written, in order
  std::string chat_template;          // empty: the model's own
  // Unset: what FROM brings; empty: none.
  std::optional<std::string> system;

  // ERRORS: kCorrupt for unknown commands, open quotes and missing values, naming the line;
  // kUnsupported for commands that mean something elsewhere and nothing here.
  static Result<Modelfile> Parse(std::string_view text);
};

}  // namespace kvasir

#endif  // KVASIR_CONVERT_MODELFILE_H_
