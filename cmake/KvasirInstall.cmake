# Installs headers, libraries, the program, the bundled models and a package that
# find_package(kvasir) reads. Deliberately without the headers that only tests include.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvasir)
get_property(layers GLOBAL PROPERTY KVASIR_LAYERS)
install(TARGETS kvasir_options ${layers} EXPORT kvasir-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET kvasir)
  install(TARGETS kvasir RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/kvasir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h"
        PATTERN "*-inl.h" EXCLUDE
        PATTERN "*_test_util.h" EXCLUDE
        PATTERN "kv_naive_model.h" EXCLUDE
        PATTERN "test_*.h" EXCLUDE
        PATTERN "fixtures" EXCLUDE
        PATTERN "cli" EXCLUDE
        PATTERN "testdata" EXCLUDE)
# The program looks for models in ../share/kvasir/models. Test items and goldens stay behind.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models DESTINATION ${CMAKE_INSTALL_DATADIR}/kvasir
        PATTERN "items.jsonl" EXCLUDE
        PATTERN "golden.json" EXCLUDE)
install(EXPORT kvasir-targets NAMESPACE kvasir:: DESTINATION ${package_dir})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/kvasir-config.cmake.in ${PROJECT_BINARY_DIR}/kvasir-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvasir-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvasir-config.cmake
              ${PROJECT_BINARY_DIR}/kvasir-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/KvasirDependencies.cmake
        DESTINATION ${package_dir})
