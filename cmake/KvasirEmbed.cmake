# kvasir_embed(TARGET HEADER FILE...) puts files into a library: it defines the function that HEADER
# (of the same folder, with EmbeddedFile) declares, which returns them by name, in order.
# Deliberately a list of numbers: no quoting can go wrong, and no tool but CMake is needed.
function(kvasir_embed target header)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/web_files.cc)
  set(files ${ARGN})
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(RELATIVE_PATH include ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${header})
  string(REPLACE ";" "|" list "${files}")
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DINCLUDE=${include} "-DFILES=${list}"
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
