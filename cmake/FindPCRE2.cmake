# PCRE2 for bytes, as the target PCRE2::8BIT: Debian's and Ubuntu's packages have no CMake files.
include(FindPackageHandleStandardArgs)
find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_LIBRARY)
if(PCRE2_INCLUDE_DIR)
  file(STRINGS ${PCRE2_INCLUDE_DIR}/pcre2.h PCRE2_VERSION
    REGEX "^#define PCRE2_(MAJOR|MINOR) +[0-9]+")
  list(TRANSFORM PCRE2_VERSION REPLACE "[^0-9]*2[^0-9]*([0-9]+)" "\\1")
  list(JOIN PCRE2_VERSION "." PCRE2_VERSION)
endif()
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR
  VERSION_VAR PCRE2_VERSION)
if(PCRE2_FOUND AND NOT TARGET PCRE2::8BIT)
  add_library(PCRE2::8BIT UNKNOWN IMPORTED)
  set_target_properties(PCRE2::8BIT PROPERTIES IMPORTED_LOCATION ${PCRE2_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${PCRE2_INCLUDE_DIR})
endif()
