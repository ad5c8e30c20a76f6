# Not tried: an overlay port for a clone of this repository,
# `vcpkg install nvfp4 --overlay-ports=packaging/vcpkg`.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DNVFP4_CUDA=OFF -DNVFP4_TESTS=OFF -DNVFP4_BENCH=OFF -DNVFP4_EXAMPLES=OFF -DNVFP4_WERROR=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/nvfp4)
vcpkg_copy_tools(TOOL_NAMES nvfp4 AUTO_CLEAN)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
