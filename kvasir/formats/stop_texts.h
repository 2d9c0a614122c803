// What ends a turn or a text in published chat formats.
// Deliberately texts: which token one is, and whether it is one at all, a vocabulary says.
#ifndef KVASIR_FORMATS_STOP_TEXTS_H_
#define KVASIR_FORMATS_STOP_TEXTS_H_

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

namespace kvasir {

inline constexpr std::string_view kStopTexts[] = {"<|eot_id|>",
                                                  "<|im_end|>",
                                                  "<|end|>",
                                                  "<end_of_turn>",
                                                  "<|endoftext|>",
                                                  "<|end_of_text|>",
                                                  "<|eom_id|>",
                                                  "<eos>",
                                                  "<turn|>",
                                                  "<|tool_response>",
                                                  "<|return|>",
                                                  "<|call|>",
                                                  "<EOT>",
                                                  "<end_of_utterance>",
                                                  "<|flush|>",
                                                  "<|calls|>",
                                                  "[EOT]",
                                                  "[EOS]",
                                                  "<｜end▁of▁sentence｜>"};

inline bool IsStopText(std::string_view text) {
  return std::find(std::begin(kStopTexts), std::end(kStopTexts), text) != std::end(kStopTexts);
}

// Where answers are rows of messages (gpt-oss) it ends one of these only.
inline constexpr std::string_view kMessageEnd = "<|end|>";
inline constexpr std::string_view kAnswerEnd = "<|return|>";
inline constexpr std::string_view kCallEnd = "<|call|>";

// Those that a chat template writes.
inline std::vector<std::string_view> StopTextsIn(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != text.npos; };
  std::vector<std::string_view> found;
  for (const std::string_view text : kStopTexts) {
    if (has(text) && !(text == kMessageEnd && has(kAnswerEnd))) found.push_back(text);
  }
  return found;
}

}  // namespace kvasir

#endif  // KVASIR_FORMATS_STOP_TEXTS_H_
