# nvfp4_add_suites(TARGET [PREFIX text] [LABELS label...]) registers each suite of a test program as one test of ctest, so
# that a suite costs one process. Suites whose name begins with Cuda get the label gpu, those whose name ends in Slow the label slow.
# The program lists its suites when ctest starts: no list is kept beside the code.
function(nvfp4_add_suites target)
  cmake_parse_arguments(arg "" "PREFIX" "LABELS" ${ARGN})
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/main.cc)
  target_link_libraries(${target} PRIVATE GTest::gmock)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  file(GENERATE OUTPUT ${file} CONTENT "set(program \"$<TARGET_FILE:${target}>\")
set(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
set(prefix \"${arg_PREFIX}\")
set(labels \"${arg_LABELS}\")
include(\"${PROJECT_SOURCE_DIR}/tests/list_suites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
