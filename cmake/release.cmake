# What tools/release.sh builds runs where this project's libraries are not installed: NVFP4_STATIC names
# the folder of tools/release_libraries.sh. The command is linked without any shared library.
if(NOT NVFP4_STATIC)
  return()
endif()
foreach(library fmt hwy)
  get_target_property(configurations ${library}::${library} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    set_target_properties(${library}::${library} PROPERTIES
      IMPORTED_LOCATION_${configuration} ${NVFP4_STATIC}/lib${library}.a)
  endforeach()
endforeach()
set_target_properties(RE2::RE2 PROPERTIES IMPORTED_LOCATION ${NVFP4_STATIC}/libre2.a)
set_target_properties(YamlCpp::YamlCpp PROPERTIES IMPORTED_LOCATION ${NVFP4_STATIC}/libyaml-cpp.a)
find_library(NVFP4_PCRE2_ARCHIVE libpcre2-8.a REQUIRED)
set_target_properties(PCRE2::8BIT PROPERTIES IMPORTED_LOCATION ${NVFP4_PCRE2_ARCHIVE})
if(APPLE)  # where programs share the system's own library, and sections are not stripped once they are signed
  add_link_options(-s)
else()
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-static-pie>)
endif()
set(CMAKE_SKIP_RPATH ON)  # glibc's start of a static-pie command aborts where there is one
