// The str methods that cut a string into pieces.
// Deliberately apart from string_methods.cc: each piece keeps its origins, which takes some care.
#ifndef KVASIR_CHAT_STRING_SPLIT_H_
#define KVASIR_CHAT_STRING_SPLIT_H_

#include "kvasir/base/result.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

Result<Value> SplitFromLeft(Runtime& runtime, const Text& self, const CallArguments& arguments);
Result<Value> SplitFromRight(Runtime& runtime, const Text& self, const CallArguments& arguments);
Result<Value> SplitLinesMethod(Runtime& runtime, const Text& self, const CallArguments& arguments);
Result<Value> PartitionFromLeft(Runtime& runtime, const Text& self, const CallArguments& arguments);
Result<Value> PartitionFromRight(Runtime& runtime, const Text& self,
                                 const CallArguments& arguments);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_STRING_SPLIT_H_
