# Toolchain file of tools/release.sh for other machines than this one. NVFP4_STATIC is the folder of
# `tools/release_libraries.sh FOLDER cross`, the only one where libraries are looked for; NVFP4_FOR says what
# it was made for: aarch64-linux (by Debian's cross compiler; qemu runs what is built) or aarch64-macos (by zig,
# whose commands are in NVFP4_TOOLS).
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NVFP4_FOR NVFP4_STATIC NVFP4_TOOLS)
if(NVFP4_FOR STREQUAL "aarch64-linux")
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
elseif(NVFP4_FOR STREQUAL "aarch64-macos")
  set(CMAKE_SYSTEM_NAME Darwin)
  set(CMAKE_SYSTEM_PROCESSOR arm64)
  set(CMAKE_CXX_COMPILER ${NVFP4_TOOLS}/c++)
  set(CMAKE_AR ${NVFP4_TOOLS}/ar)
  set(CMAKE_RANLIB ${NVFP4_TOOLS}/ranlib)
  # zig 0.17: the first of <cfloat> and <cmath> leaves the other without FLT_MAX or INFINITY; not so in this order.
  set(CMAKE_CXX_FLAGS_INIT "-U__STRICT_ANSI__ -include cfloat")
  set(CMAKE_INSTALL_NAME_TOOL ${CMAKE_RANLIB})  # CMake insists on one; nothing here is installed by it
else()
  message(FATAL_ERROR "NVFP4_FOR is \"${NVFP4_FOR}\", must be aarch64-linux or aarch64-macos")
endif()

set(CMAKE_FIND_ROOT_PATH ${NVFP4_STATIC})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE NEVER)
foreach(package fmt hwy nlohmann_json CLI11 Eigen3)
  set(${package}_DIR ${NVFP4_STATIC}/cmake)
endforeach()
foreach(library PCRE2:pcre2-8 RE2:re2 YamlCpp:yaml-cpp)
  string(REGEX MATCH "^(.*):(.*)$" library ${library})
  set(${CMAKE_MATCH_1}_INCLUDE_DIR ${NVFP4_STATIC}/include)
  set(${CMAKE_MATCH_1}_LIBRARY ${NVFP4_STATIC}/lib${CMAKE_MATCH_2}.a)
endforeach()
set(XXHASH_INCLUDE_DIR ${NVFP4_STATIC}/include)
set(NVFP4_PCRE2_ARCHIVE ${PCRE2_LIBRARY} CACHE FILEPATH "")
