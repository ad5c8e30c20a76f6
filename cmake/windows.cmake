# What the command and the library need on Windows.
if(NOT WIN32)
  return()
endif()
enable_language(RC)
target_compile_definitions(nvfp4 PRIVATE NOMINMAX WIN32_LEAN_AND_MEAN UNICODE _WIN32_WINNT=0x0A00)
target_link_libraries(nvfp4 PRIVATE bcrypt shell32)
if(NVFP4_CHECKPOINT)
  # PCRE2's header, on Windows, means a DLL unless told otherwise.
  target_compile_definitions(nvfp4_checkpoint PRIVATE PCRE2_STATIC)
endif()
if(NVFP4_CLI)
  configure_file(packaging/windows/nvfp4.manifest ${PROJECT_BINARY_DIR}/generated/nvfp4.manifest @ONLY)
  configure_file(packaging/windows/nvfp4.rc.in ${PROJECT_BINARY_DIR}/generated/nvfp4.rc @ONLY)
  target_sources(nvfp4_cli PRIVATE ${PROJECT_BINARY_DIR}/generated/nvfp4.rc)
  # As much as a thread has on Linux; the linker's default is a quarter of it.
  target_link_options(nvfp4_cli PRIVATE -Wl,--stack,8388608)
endif()

# tests/platform alone, for tools/test_windows.sh; of GoogleTest there are sources.
add_executable(nvfp4_platform_tests EXCLUDE_FROM_ALL tests/platform/files_test.cc
  tests/platform/fused_test.cc tests/platform/process_test.cc /usr/src/googletest/googletest/src/gtest-all.cc
  /usr/src/googletest/googletest/src/gtest_main.cc)
target_include_directories(nvfp4_platform_tests PRIVATE src)
target_include_directories(nvfp4_platform_tests SYSTEM PRIVATE /usr/src/googletest/googletest
  /usr/src/googletest/googletest/include)
target_link_libraries(nvfp4_platform_tests PRIVATE nvfp4 nvfp4_warnings fmt::fmt)
