# `cmake --install`: the libraries, their public headers and the CMake package; cli/CMakeLists.txt adds the command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nvfp4)

install(TARGETS nvfp4 EXPORT nvfp4Targets FILE_SET HEADERS)
install(EXPORT nvfp4Targets NAMESPACE nvfp4:: DESTINATION ${package_dir})
if(TARGET nvfp4_checkpoint)
  set_target_properties(nvfp4_checkpoint PROPERTIES INSTALL_RPATH "$ORIGIN")  # finds libnvfp4.so
  install(TARGETS nvfp4_checkpoint EXPORT nvfp4CheckpointTargets FILE_SET HEADERS)
  install(EXPORT nvfp4CheckpointTargets NAMESPACE nvfp4:: DESTINATION ${package_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindPCRE2.cmake ${PROJECT_SOURCE_DIR}/cmake/FindRE2.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindYamlCpp.cmake DESTINATION ${package_dir})
endif()

configure_package_config_file(cmake/nvfp4Config.cmake.in ${PROJECT_BINARY_DIR}/nvfp4Config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nvfp4ConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nvfp4Config.cmake ${PROJECT_BINARY_DIR}/nvfp4ConfigVersion.cmake
  DESTINATION ${package_dir})
