// The roles of messages that are known.
// Deliberately nothing of what they mean: that is the template's.
#ifndef KVASIR_CHAT_MESSAGE_ROLES_H_
#define KVASIR_CHAT_MESSAGE_ROLES_H_

#include <algorithm>
#include <array>
#include <string_view>

namespace kvasir {

// Of results of tools in Phi-4-mini's template; no request has it.
inline constexpr std::string_view kToolResponseRole = "tool_response";

inline constexpr std::array<std::string_view, 7> kMessageRoles = {
    "system", "developer", "user", "assistant", "tool", "function", kToolResponseRole};

inline bool IsMessageRole(std::string_view role) {
  return std::find(kMessageRoles.begin(), kMessageRoles.end(), role) != kMessageRoles.end();
}
inline bool IsRequestRole(std::string_view role) {
  return IsMessageRole(role) && role != kToolResponseRole;
}

}  // namespace kvasir

#endif  // KVASIR_CHAT_MESSAGE_ROLES_H_
