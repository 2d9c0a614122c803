# The libraries that Kvasir's own libraries link, as imported targets. Read twice: by the build, and
# by find_package(kvasir), because a static library hands its dependencies on to whoever links it.
# Deliberately nothing that only headers need: those are found where they are used.
find_package(Threads REQUIRED)

# What is missing ends the build; whoever only looks for the package is told that it is not there.
macro(kvasir_dependency_missing message)
  if(NOT CMAKE_FIND_PACKAGE_NAME)
    message(FATAL_ERROR "${message}")
  endif()
  set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
  set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${message}")
endmacro()

# kvasir_find_library(Kvasir::x FILE x HEADER x.h) defines the imported target.
macro(kvasir_find_library target)
  cmake_parse_arguments(kvasir_find "" "FILE;HEADER" "" ${ARGN})
  if(NOT TARGET ${target})
    find_library(KVASIR_${kvasir_find_FILE}_LIBRARY ${kvasir_find_FILE})
    find_path(KVASIR_${kvasir_find_FILE}_INCLUDE_DIR ${kvasir_find_HEADER})
    mark_as_advanced(KVASIR_${kvasir_find_FILE}_LIBRARY KVASIR_${kvasir_find_FILE}_INCLUDE_DIR)
    if(NOT KVASIR_${kvasir_find_FILE}_LIBRARY OR NOT KVASIR_${kvasir_find_FILE}_INCLUDE_DIR)
      kvasir_dependency_missing(
        "Kvasir needs the library ${kvasir_find_FILE} and its header ${kvasir_find_HEADER}; on Debian run scripts/install-packages")
    else()
      add_library(${target} UNKNOWN IMPORTED)
      set_target_properties(${target} PROPERTIES
        IMPORTED_LOCATION ${KVASIR_${kvasir_find_FILE}_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${KVASIR_${kvasir_find_FILE}_INCLUDE_DIR})
    endif()
  endif()
endmacro()

kvasir_find_library(Kvasir::hwy FILE hwy HEADER hwy/highway.h)
kvasir_find_library(Kvasir::pcre2 FILE pcre2-8 HEADER pcre2.h)
kvasir_find_library(Kvasir::utf8proc FILE utf8proc HEADER utf8proc.h)
kvasir_find_library(Kvasir::crypto FILE crypto HEADER openssl/evp.h)

if(TARGET Kvasir::pcre2)
  file(STRINGS ${KVASIR_pcre2-8_INCLUDE_DIR}/pcre2.h kvasir_pcre2_minor
       REGEX "^#define PCRE2_MINOR[ \t]+[0-9]+")
  string(REGEX REPLACE "[^0-9]*2_MINOR[^0-9]*" "" kvasir_pcre2_minor "${kvasir_pcre2_minor}")
  if(kvasir_pcre2_minor LESS 40)
    kvasir_dependency_missing("Kvasir needs PCRE2 10.40 or newer, not 10.${kvasir_pcre2_minor}")
  endif()
endif()
