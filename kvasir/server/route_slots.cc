// POST /slots/{id}?action=save|restore|erase: a conversation's cache to a file and back, as
// llama-server's slots do it.
// Deliberately no place of its own for a slot: what is restored is cached for everybody who may see
// it, whichever slot answers. Slots and files are a salt's own, as cached prefixes are.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "kvasir/server/access.h"
#include "kvasir/server/request_fields.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

constexpr size_t kMaxNameBytes = 200;

struct SlotAction {
  SlotAddress slot;
  std::string action;
  std::string filename;  // for save and restore
};

// A name of one file in one folder, on every system.
bool IsPlainName(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), is_plain);
}

Result<SlotAction> ParseSlotAction(const ServerContext& context, const HttpRequest& request) {
  SlotAction parsed;
  const std::string_view number =
      std::string_view(request.path).substr(request.path.rfind('/') + 1);
  const char* const end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, parsed.slot.number);
  if (error != std::errc() || rest != end || number.empty()) {
    return FieldError(ErrorCode::kInvalidArgument, "id_slot", "must be the number of a slot");
  }
  parsed.action = QueryValue(request.query, "action");
  const bool is_erase = parsed.action == "erase";
  if (!is_erase && parsed.action != "save" && parsed.action != "restore") {
    return FieldError(ErrorCode::kInvalidArgument, "action", "must be save, restore or erase");
  }
  Json body = Json::Object();
  if (!is_erase || !request.body.empty()) {
    KVASIR_TRY(body, ParseBody(request));
    KVASIR_TRY_OK(RequireObject(body));
  }
  KVASIR_TRY(const std::string salt, body.GetStringOr("cache_salt", ""));
  parsed.slot.tenant = CacheSalt(request, context.separates_keys, "");
  parsed.slot.salt = CacheSalt(request, context.separates_keys, salt);
  if (is_erase) return parsed;
  KVASIR_TRY(parsed.filename, body.GetStringOr("filename", ""));
  if (IsPlainName(parsed.filename)) return parsed;
  return FieldError(ErrorCode::kInvalidArgument, "filename",
                    "must be 1 to 200 letters, digits, '.', '_' or '-' and not begin with '.'");
}

double MsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Where the files of those with this salt are: no file of others has such a name.
std::string FolderOf(const ServerContext& context, uint64_t salt) {
  if (salt == 0) return context.slot_folder;
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), salt, 16).ptr;
  return context.slot_folder + "/@" + std::string(digits.begin(), end);
}

// What a file's error says to a client, who need not know where files lie.
ApiError FileError(const ServerContext& context, const SlotAction& action, const Error& error) {
  ApiError answer = ToApiError(error);
  const std::string folder = FolderOf(context, action.slot.salt) + "/";
  if (answer.message.starts_with(folder)) answer.message.erase(0, folder.size());
  if (error.code == ErrorCode::kNotFound) answer.status = 404;
  if (error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kFailedPrecondition) {
    answer.status = 400;
  }
  return answer;
}

// A link in the folder would lead out of it.
Status CheckIsNoLink(const std::string& folder, const std::string& path, bool is_own_folder) {
  std::error_code ignored;
  const bool is_link = std::filesystem::is_symlink(path, ignored) ||
                       (is_own_folder && std::filesystem::is_symlink(folder, ignored));
  if (!is_link) return {};
  return {ErrorCode::kFailedPrecondition, path + ": is a link, which slots do not follow"};
}

Result<Json> Act(const ServerContext& context, const SlotAction& action, const HttpReply& reply) {
  const auto begin = std::chrono::steady_clock::now();
  const bool is_save = action.action == "save";
  const std::string folder = FolderOf(context, action.slot.salt);
  KVASIR_TRY_OK(CheckIsNoLink(folder, folder + "/" + action.filename, action.slot.salt != 0));
  // Where it cannot be made, saving says why.
  std::error_code ignored;
  const bool is_new =
      is_save && action.slot.salt != 0 && std::filesystem::create_directory(folder, ignored);
  const SlotFile file = {folder + "/" + action.filename,
                         [&reply] { return reply.is_client_gone(); }};
  const auto stats = is_save ? context.service->SaveSlot(action.slot, file)
                             : context.service->LoadSlot(action.slot, file);
  if (!stats.ok()) {
    if (is_new) std::filesystem::remove(folder, ignored);  // unless somebody else saved there
    return stats.error();
  }
  return Json(Json::Object{
      {"id_slot", action.slot.number},
      {"filename", action.filename},
      {is_save ? "n_saved" : "n_restored", stats->tokens},
      {is_save ? "n_written" : "n_read", static_cast<uint64_t>(stats->bytes)},
      {"timings", Json::Object{{is_save ? "save_ms" : "restore_ms", MsSince(begin)}}}});
}

}  // namespace

void ServeSlotAction(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  if (context.slot_folder.empty()) {
    return reply.Send(ErrorResponse({501,
                                     "this server does not save slots; start it with "
                                     "--slot-save-path FOLDER",
                                     "", "not_supported"}));
  }
  auto action = ParseSlotAction(context, request);
  if (!action.ok()) return reply.Send(ErrorResponse(ToApiError(action.error())));
  if (!context.service->HasSlot(action->slot.number)) {
    return reply.Send(ErrorResponse(
        {404, "there is no slot " + std::to_string(action->slot.number), "id_slot", "not_found"}));
  }
  if (action->action == "erase") {
    const int64_t erased = context.service->EraseSlot(action->slot);
    const Json answer = Json::Object{{"id_slot", action->slot.number}, {"n_erased", erased}};
    return reply.Send({.body = answer.Dump()});
  }
  // Whoever waits for a disk must hold up neither answers nor other requests.
  const auto shared = std::make_shared<HttpReply>(std::move(reply));
  context.post_file([&context, action = *std::move(action), shared] {
    const auto answer = Act(context, action, *shared);
    if (!answer.ok()) {
      return shared->Send(ErrorResponse(FileError(context, action, answer.error())));
    }
    shared->Send({.body = answer->Dump()});
  });
}

}  // namespace kvasir
