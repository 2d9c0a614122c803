# Fails unless an object file asks for memory ahead of time: g++ once dropped calls of a function
# that did nothing else, and nothing but the speed of decoding showed it.
#   cmake -D OBJDUMP=... -D OBJECT=... -P check_hints.cmake
execute_process(COMMAND ${OBJDUMP} -d ${OBJECT} OUTPUT_VARIABLE code COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "prefetcht0|prfm[ \t]+pldl1keep" hints "${code}")
list(LENGTH hints count)
if(count LESS 2)
  message(FATAL_ERROR "${OBJECT} has ${count} hints into the first-level cache; keys and values of a "
                      "block take one each: see FetchLines in kvasir/kernels/prefetching.h")
endif()
