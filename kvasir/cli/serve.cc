// kvasir serve: the OpenAI-compatible server around one model.
#include <csignal>
#include <cstdio>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/server/server.h"

namespace kvasir {
namespace {

class ServeCommand final : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string help() const override {
    return "serve /v1/chat/completions, /v1/models and /health over HTTP";
  }

  void Declare(Flags& flags) override {
    model_.Declare(flags);
    flags.Add("--host", &host_, "address to listen on; 127.0.0.1 is this machine only");
    flags.Add("--port", &port_, "port to listen on; 0: any free one");
    flags.Add("--alias", &alias_, "name of the model in answers; default: the folder's");
  }

  Status Run() override {
    if (port_ < 0 || port_ > 65535) {
      return {ErrorCode::kInvalidArgument, "--port must be 0 to 65535"};
    }
    // Blocked before any thread starts, so that only sigwait below receives them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);

    KVASIR_TRY(const BundleOptions bundle_options, model_.Options());
    KVASIR_TRY(const auto bundle, model_.Load());
    ServerOptions options;
    options.host = host_;
    options.port = static_cast<uint16_t>(port_);
    options.model_name = alias_.empty() ? bundle->name() : alias_;
    options.log = bundle_options.log;
    KVASIR_TRY(const auto server, Server::Start(bundle.get(), options));
    std::fprintf(stderr, "listening on http://%s:%d\n", host_.c_str(),
                 static_cast<int>(server->port()));
    int signal = 0;
    sigwait(&signals, &signal);
    std::fprintf(stderr, "stopping\n");
    server->Stop();
    server->Wait();
    return {};
  }

 private:
  ModelFlags model_;
  std::string host_ = "127.0.0.1";
  std::string alias_;
  int64_t port_ = 8080;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace kvasir
