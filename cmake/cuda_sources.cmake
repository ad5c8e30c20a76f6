# Takes from `sources`, a list of the caller, what is not for this build: without CUDA everything for it but the plans.
# With CUDA the kernels of a GEMM folder become a library of objects, since each folder has targets of its own.
if(NOT NVFP4_WITH_CUDA)
  set(plans ${sources})
  list(FILTER plans INCLUDE REGEX "/backends/cuda/(unavailable|gemm/(sm[0-9]+/|fp8/)?[a-z_]+)\\.cc$")
  list(FILTER plans EXCLUDE REGEX "/(launch|make_arguments|tensor_maps|library)\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/backends/cuda/")
  list(APPEND sources ${plans})
  return()
endif()
list(FILTER sources EXCLUDE REGEX "/backends/cuda/unavailable\\.cc$")

# The kernels of a folder for the targets that follow; without any they are left out.
macro(nvfp4_gemm_library name folder)
  file(GLOB gemm_sources CONFIGURE_DEPENDS ${folder}/*.cu)
  list(REMOVE_ITEM sources ${gemm_sources})
  if(${ARGC} GREATER 2)
    set(gemm nvfp4_gemm_${name})
    add_library(${gemm} OBJECT ${gemm_sources})
    target_include_directories(${gemm} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    nvfp4_use_cuda(${gemm} ${ARGN})
    if(NVFP4_WERROR)
      set_target_properties(${gemm} PROPERTIES RULE_LAUNCH_COMPILE
                            "\"${PROJECT_SOURCE_DIR}/tools/no_serialized_wgmma.sh\"")
    endif()
    list(APPEND sources $<TARGET_OBJECTS:${gemm}>)
  endif()
endmacro()
# gemm/sm90 has instructions that exist on that architecture only, whatever else the build is for;
# gemm/sm80 has those that all have since; gemm/sm120 those of one family, where the build is for it.
file(GLOB gemm_folders CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/cuda/gemm/sm*
  ${PROJECT_SOURCE_DIR}/src/backends/cuda/gemm/fp8)
foreach(folder IN LISTS gemm_folders)
  cmake_path(GET folder FILENAME architecture)
  string(REPLACE "sm" "" number ${architecture})
  set(definitions NVFP4_WITH_CUDA)
  if(architecture STREQUAL sm120)
    set(number 120f)
    if(NVFP4_WITH_OMMA)
      list(APPEND definitions NVFP4_WITH_OMMA)
    else()
      message(STATUS "FP4 kernels of compute capability 12.x: not built, NVFP4_CUDA_ARCHITECTURES names no 120f")
      set(number)
    endif()
  elseif(architecture STREQUAL sm100)  # a library's kernels, and some of ours around them
    set(number ${NVFP4_CUDA_ARCHITECTURES})
  elseif(architecture STREQUAL fp8)  # those with FP8 instructions
    set(number "89;90a;120f")
  elseif(number GREATER_EQUAL 90)
    string(APPEND number a)
  else()
    set(number ${NVFP4_CUDA_ARCHITECTURES})
  endif()
  nvfp4_gemm_library(${architecture} ${folder} ${number})
  set_source_files_properties(${folder}/architecture.cc ${folder}/launch.cc PROPERTIES
    COMPILE_DEFINITIONS "${definitions}")
endforeach()
string(REPLACE ";" "," gpu_targets "${NVFP4_CUDA_ARCHITECTURES}")
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backends/cuda/runtime.cc PROPERTIES
  COMPILE_DEFINITIONS NVFP4_GPU_TARGETS="${gpu_targets}")
