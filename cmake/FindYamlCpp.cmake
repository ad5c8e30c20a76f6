# yaml-cpp as the target YamlCpp::YamlCpp: its own CMake files name their target otherwise in each version.
include(FindPackageHandleStandardArgs)
find_path(YamlCpp_INCLUDE_DIR yaml-cpp/parser.h)
find_library(YamlCpp_LIBRARY yaml-cpp)
mark_as_advanced(YamlCpp_INCLUDE_DIR YamlCpp_LIBRARY)
find_package_handle_standard_args(YamlCpp REQUIRED_VARS YamlCpp_LIBRARY YamlCpp_INCLUDE_DIR)
if(YamlCpp_FOUND AND NOT TARGET YamlCpp::YamlCpp)
  add_library(YamlCpp::YamlCpp UNKNOWN IMPORTED)
  set_target_properties(YamlCpp::YamlCpp PROPERTIES IMPORTED_LOCATION ${YamlCpp_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${YamlCpp_INCLUDE_DIR})
endif()
