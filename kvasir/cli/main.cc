// The program: a list of verbs.
#include <csignal>
#include <vector>

#include "kvasir/cli/commands.h"

int main(int argc, char** argv) {
  // A reader that goes away, and a file that reaches its limit, are errors of the write (exit code
  // 7), not the end of the program.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::vector<std::unique_ptr<kvasir::Command>> commands;
  commands.push_back(kvasir::MakeGenerateCommand());
  commands.push_back(kvasir::MakeChatCommand());
  commands.push_back(kvasir::MakeServeCommand());
  commands.push_back(kvasir::MakeLogitsCommand());
  commands.push_back(kvasir::MakeTokenizeCommand());
  commands.push_back(kvasir::MakeInspectCommand());
  commands.push_back(kvasir::MakeConvertCommand());
  commands.push_back(kvasir::MakeCreateCommand());
  commands.push_back(kvasir::MakeBenchCommand());
  commands.push_back(kvasir::MakeReplayCommand());
  commands.push_back(kvasir::MakeDemoCommand());
  return kvasir::RunCommandLine(commands, argc, argv);
}
