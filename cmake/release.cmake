# For systems with glibc 2.28 and newer: NVFP4_ZIG (PyPI's ziglang) links what the compiler made against the symbols
# of that version. Nothing else is shared. Such a file needs NVFP4_ZIG_SOURCE too.
if(NVFP4_ZIG)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a
    OUTPUT_VARIABLE libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(NVFP4_ZIG_LINK "${NVFP4_ZIG} cc -target ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.2.28 -s -o <TARGET> <OBJECTS> \
<LINK_LIBRARIES> ${libstdcxx} -lunwind -lm -lpthread -Wl,--gc-sections")
  set(NVFP4_ZIG_SOURCE ${PROJECT_SOURCE_DIR}/python/src/portable/newer_glibc.cc)
endif()

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
if(NVFP4_WITH_CUDA)
  # CUDA's runtime loads the driver, so the command is for systems with glibc 2.28 and newer, and shares that alone.
  if(NOT NVFP4_ZIG)
    message(FATAL_ERROR "NVFP4_STATIC with CUDA needs NVFP4_ZIG, which links for an old glibc")
  endif()
  set(CMAKE_CXX_LINK_EXECUTABLE "${NVFP4_ZIG_LINK} -pie")
else()
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-static-pie>)
endif()
set(CMAKE_SKIP_RPATH ON)  # glibc's start of a static-pie command aborts where there is one
