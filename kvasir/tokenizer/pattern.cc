#include "kvasir/tokenizer/pattern.h"

namespace kvasir {

void PartsOfMatches(const std::vector<TextSpan>& matches, size_t size,
                    std::vector<TextPart>* parts) {
  size_t previous_end = 0;
  for (const TextSpan& match : matches) {
    if (match.begin != previous_end) parts->push_back({{previous_end, match.begin}, false});
    parts->push_back({match, true});
    previous_end = match.end;
  }
  if (previous_end != size) parts->push_back({{previous_end, size}, false});
}

Result<Pattern> Pattern::FromRegex(std::string_view regex) {
  Pattern pattern;
  KVASIR_TRY(pattern.regex_, Regex::Compile(regex));
  return pattern;
}

Result<Pattern> Pattern::FromJson(const Json& component) {
  const Json* json = component.Find("pattern");
  if (json == nullptr) return {ErrorCode::kCorrupt, "field 'pattern' is missing"};
  if (!json->is_object() || json->as_object().size() != 1) {
    return {ErrorCode::kCorrupt,
            "field 'pattern' must be an object with one member 'String' or 'Regex'"};
  }
  const auto& [kind, value] = json->as_object().front();
  if (kind != "String" && kind != "Regex") {
    return {ErrorCode::kUnsupported,
            "field 'pattern' has the unknown kind '" + kind + "'; known are String and Regex"};
  }
  if (!value.is_string()) {
    return {ErrorCode::kCorrupt,
            "field 'pattern." + kind + "' must be a string, not " + std::string(value.type_name())};
  }
  // An empty literal matches between all characters, which the empty regex does as well.
  if (kind == "Regex" || value.as_string().empty()) return FromRegex(value.as_string());
  Pattern pattern;
  pattern.literal_ = value.as_string();
  return pattern;
}

Pattern::Finder::Finder(const Pattern& pattern) : pattern_(pattern) {
  if (pattern.regex_.has_value()) scanner_.emplace(*pattern.regex_);
}

void Pattern::Finder::FindAll(std::string_view text, std::vector<TextSpan>* matches) {
  if (scanner_.has_value()) return scanner_->FindAll(text, matches);
  const std::string& literal = pattern_.literal_;
  for (size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    matches->push_back({at, at + literal.size()});
  }
}

}  // namespace kvasir
