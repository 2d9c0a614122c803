// The tojson filter: Python's json.dumps with the defaults of transformers.
// Deliberately giving its output no trust, not even its brackets: it is data on the way to the
// model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/large_integer.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Status Write(const Value& value) {
    KVASIR_TRY_OK(runtime_.Step());
    KVASIR_TRY_OK(runtime_.CheckStringSize(out_.size()));
    if (value.is_string()) return WriteString(value.bytes());
    if (value.is_dict()) return WriteDict(value.dict());
    const bool is_array = value.is_sequence() && value.sequence().kind <= SequenceKind::kTuple;
    if (is_array) return WriteArray(value.sequence());
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_int()) {
      out_ += std::to_string(value.as_integral());
    } else if (value.is_float()) {
      WriteDouble(value.as_double());
    } else if (const auto* large = LargeIntegerOf(value)) {
      out_ += large->Repr();
    } else {
      return TemplateError("tojson: an object of type " + std::string(TypeName(value)) +
                           " is not JSON serializable");
    }
    return Status();
  }

  std::string Take() { return std::move(out_); }

 private:
  void WriteDouble(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += ReprDouble(value);
    }
  }

  void WriteEscape(uint32_t code_unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", code_unit);
    out_ += buffer;
  }

  Status WriteString(std::string_view text) {
    KVASIR_TRY_OK(runtime_.StepBytes(text.size()));
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const CodePoint next = DecodeUtf8(text, at);
      const uint32_t c = next.value;
      static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
      static constexpr std::string_view kShort = "\"\\nrtfb";
      const size_t special =
          c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
      if (special != std::string_view::npos) {
        out_ += '\\';
        out_ += kShort[special];
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
        WriteEscape(c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        WriteEscape(0xD800 + ((c - 0x10000) >> 10));
        WriteEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out_ += text.substr(at, next.size_bytes);
      }
      at += next.size_bytes;
    }
    out_ += '"';
    return Status();
  }

  void NewLine() {
    if (!style_.has_indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += style_.indent;
  }

  Status WriteArray(const Sequence& sequence) {
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i != 0) out_ += style_.item_separator;
      NewLine();
      KVASIR_TRY_OK(Write(sequence.items[i]));
    }
    --level_;
    if (!sequence.items.empty()) NewLine();
    out_ += ']';
    return Status();
  }

  // Keys of other types become strings as Python makes them.
  Status WriteKey(const Value& key) {
    if (key.is_string()) return WriteString(key.bytes());
    if (key.is_sequence()) return TemplateError("tojson: a tuple cannot be a key");
    out_ += '"';
    KVASIR_TRY_OK(Write(key));
    out_ += '"';
    return Status();
  }

  Status WriteDict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      const bool all_strings = std::all_of(entries.begin(), entries.end(), [](const auto* entry) {
        return entry->first.is_string();
      });
      if (!all_strings) return TemplateError("tojson: sort_keys needs keys that are strings");
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) { return a->first.bytes() < b->first.bytes(); });
    }
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i != 0) out_ += style_.item_separator;
      NewLine();
      KVASIR_TRY_OK(WriteKey(entries[i]->first));
      out_ += style_.key_separator;
      KVASIR_TRY_OK(Write(entries[i]->second));
    }
    --level_;
    if (!entries.empty()) NewLine();
    out_ += '}';
    return Status();
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  int level_ = 0;
  std::string out_;
};

Status ReadIndent(Runtime& runtime, const Value& indent, JsonStyle* style) {
  style->has_indent = true;
  style->item_separator = ",";
  if (indent.is_string()) {
    style->indent = indent.bytes();
  } else if (indent.is_integral()) {
    const int64_t width = std::max<int64_t>(0, indent.as_integral());
    // Every nested line repeats it.
    if (width > 1000) return TemplateError("tojson: an indent above 1000 is refused");
    style->indent.assign(static_cast<size_t>(width), ' ');
  } else {
    return TemplateError("tojson: indent must be an integer or a string");
  }
  return runtime.CheckStringSize(style->indent.size() * 1000);
}

}  // namespace

Result<Value> ToJson(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const BoundArguments bound,
             BoundArguments::Bind("tojson", arguments,
                                  {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ensure_ascii = bound.TruthOr(0, false);
  style.sort_keys = bound.TruthOr(3, false);
  if (const Value* indent = bound.GetSome(1)) KVASIR_TRY_OK(ReadIndent(runtime, *indent, &style));
  if (const Value* separators = bound.GetSome(2)) {
    const bool is_pair = separators->is_sequence() && separators->sequence().items.size() == 2 &&
                         separators->sequence().items[0].is_string() &&
                         separators->sequence().items[1].is_string();
    if (!is_pair) return TemplateError("tojson: separators must be two strings");
    style.item_separator = separators->sequence().items[0].bytes();
    style.key_separator = separators->sequence().items[1].bytes();
  }
  JsonWriter writer(runtime, style);
  KVASIR_TRY_OK(writer.Write(input));
  return runtime.String(writer.Take(), Origin::kInput);
}

}  // namespace kvasir::chat
