// The verbs of the program, one file each. An explicit list: main.cc names them all.
// Deliberately only constructors: a verb's options and behaviour live in its file.
#ifndef KVASIR_CLI_COMMANDS_H_
#define KVASIR_CLI_COMMANDS_H_

#include <memory>

#include "kvasir/cli/flags.h"

namespace kvasir {

std::unique_ptr<Command> MakeGenerateCommand();  // generate.cc
std::unique_ptr<Command> MakeChatCommand();      // chat.cc
std::unique_ptr<Command> MakeServeCommand();     // serve.cc
std::unique_ptr<Command> MakeLogitsCommand();    // logits.cc
std::unique_ptr<Command> MakeTokenizeCommand();  // tokenize.cc
std::unique_ptr<Command> MakeInspectCommand();   // inspect.cc
std::unique_ptr<Command> MakeConvertCommand();   // convert.cc
std::unique_ptr<Command> MakeCreateCommand();    // create.cc
std::unique_ptr<Command> MakeBenchCommand();     // bench.cc
std::unique_ptr<Command> MakeReplayCommand();    // replay.cc
std::unique_ptr<Command> MakeDemoCommand();      // demo.cc

}  // namespace kvasir

#endif  // KVASIR_CLI_COMMANDS_H_
