# Installs headers, libraries, the program and a package that find_package(kvasir) reads.
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY KVASIR_LAYERS)
install(TARGETS kvasir_options ${layers} EXPORT kvasir-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET kvasir)
  install(TARGETS kvasir RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/kvasir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(EXPORT kvasir-targets NAMESPACE kvasir:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvasir)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/kvasir-config.cmake.in ${PROJECT_BINARY_DIR}/kvasir-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvasir)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvasir-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvasir-config.cmake
              ${PROJECT_BINARY_DIR}/kvasir-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kvasir)
