# Compares the headers below PREFIX with the list of PAGE: what is installed is what the page lists.
file(GLOB_RECURSE installed RELATIVE ${PREFIX}/include ${PREFIX}/include/*)
file(STRINGS ${PAGE} listed REGEX "^- `nvfp4/[a-z_/]+\\.h`")
list(TRANSFORM listed REPLACE "^- `([^`]+)`.*" "\\1")
list(SORT installed)
list(SORT listed)
if(NOT installed STREQUAL listed)
  message(FATAL_ERROR "installed: ${installed}\n${PAGE} lists: ${listed}")
endif()
