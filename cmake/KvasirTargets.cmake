# Helpers that every layer's CMakeLists.txt uses: one library and some tests per folder.
include(GNUInstallDirs)
include(KvasirDependencies)
include(KvasirEmbed)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(KVASIR_CCACHE ccache)
if(KVASIR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KVASIR_CCACHE})
endif()

# Strict: results must not depend on what the optimiser may contract. Every fused multiply-add in
# Kvasir is written as one (docs/numerics.md).
add_library(kvasir_options INTERFACE)
set_target_properties(kvasir_options PROPERTIES EXPORT_NAME options)
target_compile_features(kvasir_options INTERFACE cxx_std_20)
target_compile_options(kvasir_options INTERFACE
  $<BUILD_INTERFACE:-Wall;-Wextra;-Werror;-Wno-unknown-pragmas;-Wno-missing-field-initializers;-ffp-contract=off>)
target_include_directories(kvasir_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(KVASIR_SANITIZE)
  # Instrumented code confuses GCC 12's flow analysis: it warns of moved-from variants and strings.
  # Tracking where optimised variables are takes it ten minutes and more for a file of integer
  # kernels, which compiles in half a minute without.
  target_compile_options(kvasir_options INTERFACE
    $<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-free-nonheap-object;-fno-var-tracking-assignments>>)
  target_compile_options(kvasir_options INTERFACE
    $<BUILD_INTERFACE:-fsanitize=${KVASIR_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(kvasir_options INTERFACE $<BUILD_INTERFACE:-fsanitize=${KVASIR_SANITIZE}>)
  # The sanitizers see memory, not the ends of a vector, span or string_view inside of it, nor an
  # optional without a value.
  target_compile_definitions(kvasir_options INTERFACE $<BUILD_INTERFACE:_GLIBCXX_ASSERTIONS>)
endif()
if(KVASIR_BUILD_FUZZERS)
  target_compile_options(kvasir_options INTERFACE $<BUILD_INTERFACE:-fsanitize=fuzzer-no-link>)
endif()

# kvasir_layer(base SOURCES a.cc ... DEPENDS tensor ... PRIVATE_LIBRARIES Kvasir::hwy ...)
# defines the static library kvasir_base, alias kvasir::base. Private libraries come from
# KvasirDependencies.cmake; one that is only headers goes in as $<BUILD_INTERFACE:...>.
function(kvasir_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_LIBRARIES" ${ARGN})
  set(target kvasir_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(kvasir::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(${target} PUBLIC kvasir_options)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${target} PUBLIC kvasir_${dependency})
  endforeach()
  target_link_libraries(${target} PRIVATE ${ARG_PRIVATE_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY KVASIR_LAYERS ${target})
endfunction()

# kvasir_test(name SOURCES a_test.cc ... DEPENDS kv ... LIBRARIES ... [LABELS slow])
# builds one GoogleTest program; ctest runs it as a whole.
function(kvasir_test name)
  if(NOT KVASIR_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${name} PRIVATE kvasir_${dependency})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} kvasir_options GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    KVASIR_SOURCE_DIR="${PROJECT_SOURCE_DIR}" KVASIR_SHARED_DATA="${KVASIR_SHARED_DATA}")
  # What is tested is optimised; its tests compile in three quarters of the time so.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  add_test(NAME ${name} COMMAND ${name})
  # Many times what the slowest takes; under sanitizers and emulated it takes ten times as long.
  set(timeout_s 300)
  if(KVASIR_SANITIZE OR CMAKE_CROSSCOMPILING)
    set(timeout_s 1500)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout_s} LABELS "${ARG_LABELS}")
endfunction()

if(KVASIR_BUILD_TESTS)
  enable_testing()
endif()
if(NOT KVASIR_SHARED_DATA AND EXISTS ${PROJECT_SOURCE_DIR}/../shared/traces)
  get_filename_component(shared ${PROJECT_SOURCE_DIR}/../shared ABSOLUTE)
  set(KVASIR_SHARED_DATA ${shared} CACHE PATH "Reference data" FORCE)
endif()
