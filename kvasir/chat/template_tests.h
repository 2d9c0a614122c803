// The tests of jinja2 (value is name(arguments)).
// Deliberately named template_tests: these are features, their unit tests are elsewhere.
#ifndef KVASIR_CHAT_TEMPLATE_TESTS_H_
#define KVASIR_CHAT_TEMPLATE_TESTS_H_

#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

using TestFunction = Result<bool> (*)(Runtime&, const Value& input, const CallArguments&);

// nullptr when there is no such test.
TestFunction FindTest(std::string_view name);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_TEMPLATE_TESTS_H_
