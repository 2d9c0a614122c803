// POST /slots/{id}?action=save|restore|erase: a conversation's cache to a file and back, as
// llama-server's slots do it.
// Deliberately no place of its own for a slot: what is restored is cached for everybody who may see
// it, whichever slot answers.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>

#include "kvasir/server/request_fields.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

constexpr size_t kMaxNameBytes = 200;

struct SlotAction {
  int64_t slot = 0;
  std::string action;
  std::string filename;  // for save and restore
};

// The value of `name` in "a=1&b=2"; empty if it is not there.
std::string_view QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) {
      return pair.substr(name.size() + 1);
    }
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
  }
  return {};
}

// A name of one file in one folder, on every system.
bool IsPlainName(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), is_plain);
}

Result<SlotAction> ParseSlotAction(const HttpRequest& request) {
  SlotAction parsed;
  const std::string_view number =
      std::string_view(request.path).substr(request.path.rfind('/') + 1);
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, parsed.slot);
  if (error != std::errc() || rest != end || number.empty()) {
    return FieldError(ErrorCode::kInvalidArgument, "id_slot", "must be the number of a slot");
  }
  parsed.action = QueryValue(request.query, "action");
  if (parsed.action == "erase") return parsed;
  if (parsed.action != "save" && parsed.action != "restore") {
    return FieldError(ErrorCode::kInvalidArgument, "action", "must be save, restore or erase");
  }
  KVASIR_TRY(const Json body, ParseBody(request));
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY(parsed.filename, body.GetStringOr("filename", ""));
  if (IsPlainName(parsed.filename)) return parsed;
  return FieldError(ErrorCode::kInvalidArgument, "filename",
                    "must be 1 to 200 letters, digits, '.', '_' or '-' and not begin with '.'");
}

double MsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// What a file's error says to a client, who need not know where files lie.
ApiError FileError(const ServerContext& context, const Error& error) {
  ApiError answer = ToApiError(error);
  const std::string folder = context.slot_folder + "/";
  if (answer.message.starts_with(folder)) answer.message.erase(0, folder.size());
  if (error.code == ErrorCode::kNotFound) answer.status = 404;
  if (error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kFailedPrecondition) {
    answer.status = 400;
  }
  return answer;
}

Result<Json> Act(const ServerContext& context, const SlotAction& action) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string path = context.slot_folder + "/" + action.filename;
  Json answer = Json::Object{{"id_slot", action.slot}};
  if (action.action == "erase") {
    answer.Set("n_erased", context.service->EraseSlot(action.slot));
    return answer;
  }
  const bool is_save = action.action == "save";
  KVASIR_TRY(const PrefixCacheFileStats stats, is_save
                                                   ? context.service->SaveSlot(action.slot, path)
                                                   : context.service->LoadSlot(action.slot, path));
  answer.Set("filename", action.filename);
  answer.Set(is_save ? "n_saved" : "n_restored", stats.tokens);
  answer.Set(is_save ? "n_written" : "n_read", static_cast<uint64_t>(stats.bytes));
  answer.Set("timings", Json::Object{{is_save ? "save_ms" : "restore_ms", MsSince(begin)}});
  return answer;
}

}  // namespace

void ServeSlotAction(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  if (context.slot_folder.empty()) {
    return reply.Send(ErrorResponse({501,
                                     "this server does not save slots; start it with "
                                     "--slot-save-path FOLDER",
                                     "", "not_supported"}));
  }
  const auto action = ParseSlotAction(request);
  if (!action.ok()) return reply.Send(ErrorResponse(ToApiError(action.error())));
  if (!context.service->HasSlot(action->slot)) {
    return reply.Send(ErrorResponse(
        {404, "there is no slot " + std::to_string(action->slot), "id_slot", "not_found"}));
  }
  const auto answer = Act(context, *action);
  if (!answer.ok()) return reply.Send(ErrorResponse(FileError(context, answer.error())));
  reply.Send({.body = answer->Dump()});
}

}  // namespace kvasir
