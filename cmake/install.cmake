# `cmake --install`: the library, its public headers, the nvfp4 command and the CMake package.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nvfp4)

install(TARGETS nvfp4 EXPORT nvfp4Targets FILE_SET HEADERS)
install(EXPORT nvfp4Targets NAMESPACE nvfp4:: DESTINATION ${package_dir})

configure_package_config_file(cmake/nvfp4Config.cmake.in ${PROJECT_BINARY_DIR}/nvfp4Config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nvfp4ConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nvfp4Config.cmake ${PROJECT_BINARY_DIR}/nvfp4ConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindPCRE2.cmake ${PROJECT_SOURCE_DIR}/cmake/FindRE2.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindYamlCpp.cmake
  DESTINATION ${package_dir})

if(TARGET nvfp4_cli)
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    set_target_properties(nvfp4_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  endif()
  install(TARGETS nvfp4_cli COMPONENT command)
  if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    # The command writes them: manual pages and completions.
    set(pages "$<TARGET_FILE_DIR:nvfp4_cli>/share")
    add_custom_command(TARGET nvfp4_cli POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} "-DNVFP4=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:nvfp4_cli>" -DTO=${pages}
              -P ${PROJECT_SOURCE_DIR}/cmake/write_pages.cmake)
    install(DIRECTORY "${pages}/man" "${pages}/bash-completion" "${pages}/zsh" "${pages}/fish"
      DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT command)
  endif()
endif()
