# What the command and the library need on Windows.
if(NOT WIN32)
  return()
endif()
enable_language(RC)
target_compile_definitions(nvfp4 PRIVATE NOMINMAX WIN32_LEAN_AND_MEAN UNICODE _WIN32_WINNT=0x0A00)
target_link_libraries(nvfp4 PRIVATE bcrypt shell32)
if(NVFP4_CLI)
  configure_file(packaging/windows/nvfp4.manifest ${PROJECT_BINARY_DIR}/generated/nvfp4.manifest @ONLY)
  configure_file(packaging/windows/nvfp4.rc.in ${PROJECT_BINARY_DIR}/generated/nvfp4.rc @ONLY)
  target_sources(nvfp4_cli PRIVATE ${PROJECT_BINARY_DIR}/generated/nvfp4.rc)
  # As much as a thread has on Linux; the linker's default is a quarter of it.
  target_link_options(nvfp4_cli PRIVATE -Wl,--stack,8388608)
endif()
