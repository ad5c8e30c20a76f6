# Toolchain file: cross-compiles for Windows on x86-64 and runs the result in Wine. The libraries are in
# NVFP4_SYSROOT, where tools/windows_libraries.sh puts them.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
# Threads of C++ need the flavour "posix".
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_CROSSCOMPILING_EMULATOR /usr/lib/wine/wine64)
# The stack of Windows is aligned to 16 bytes, and GCC does not align it further for vectors that
# functions pass and keep (its bug 54412): aligned moves of 32 and 64 bytes become unaligned ones, which
# are as fast.
set(CMAKE_CXX_FLAGS_INIT -Wa,-muse-unaligned-vector-move)
# No DLL of the compiler beside the program; no time in it.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static -Wl,--no-insert-timestamp")

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NVFP4_SYSROOT)
set(CMAKE_FIND_ROOT_PATH ${NVFP4_SYSROOT} /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
