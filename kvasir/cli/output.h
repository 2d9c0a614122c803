// What verbs print: results on stdout, progress and reports on stderr.
// Deliberately no colours and no cursor tricks: output is read by scripts too.
#ifndef KVASIR_CLI_OUTPUT_H_
#define KVASIR_CLI_OUTPUT_H_

#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/log.h"
#include "kvasir/engine/generator.h"

namespace kvasir {

// Writes to stdout and flushes. ERRORS: kIo (a closed pipe, a full disk).
Status Print(std::string_view text);
// What a model says: the same, but a terminal gets no control characters.
Status PrintAnswer(std::string_view text);
// One JSON value on a line of its own.
Status PrintJson(const Json& value);
// A LogSink: a line for people, with its level where that is not kInfo.
void LogToStderr(LogLevel level, std::string_view line);
// "12.3 MiB"
std::string FormatBytes(size_t bytes);

// One line for people: tokens, speed, cache.
std::string StatsLine(const GenerationStats& stats);
Json StatsJson(const GenerationStats& stats);

// Shows prompt evaluation on stderr, in place, when it is a terminal and takes several chunks.
void ShowPrefillProgress(int64_t done, int64_t total);

// Shows bytes written of `what` on stderr, in place, when it is a terminal; a line at the end.
void ShowWriteProgress(std::string_view what, uint64_t done, uint64_t total);

// Set by Ctrl-C once InstallInterruptHandler was called: an answer stops, the program goes on. A
// second Ctrl-C that nobody has taken ends the program.
void InstallInterruptHandler();
bool Interrupted();
void ClearInterrupt();

}  // namespace kvasir

#endif  // KVASIR_CLI_OUTPUT_H_
