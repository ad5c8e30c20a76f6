# What makes compiling quicker: the headers that take longest to parse, precompiled, and NVFP4_UNITY.
set(NVFP4_PRECOMPILED <algorithm> <cstdint> <filesystem> <fmt/format.h> <functional> <map> <optional> <string>
  <string_view> <vector>)
set(NVFP4_PRECOMPILED_JSON <nlohmann/json.hpp>)
list(TRANSFORM NVFP4_PRECOMPILED REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
list(TRANSFORM NVFP4_PRECOMPILED_JSON REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")

# NVFP4_UNITY: many files in one, so that headers are read and templates instantiated once. Not by UNITY_BUILD,
# whose files cannot have options of their own: NVFP4_COLD_OPTIONS are for those marked cold. A unit's name, its
# mark, its files; the longest first. Other files stay alone, such as tables of functions, which have the same names.
set(NVFP4_UNITS
  weights hot "src/checkpoint/((encode|statistics)/|formats/logical_tensor|load/layer_weights|verify/(fp8_codes|scales))"
  verify cold "src/checkpoint/verify/"
  output cold "src/checkpoint/(load|output|repair)/"
  plan cold "src/checkpoint/(choose|plan|recipe|run|write)/"
  source cold
  "src/checkpoint/((gguf|hub|source)/|formats/(declared|excludes|find_tensors|lost_scales|registry|unread_forms))"
  io cold "src/checkpoint/(base|engines|families|io|match|safetensors)/"
  operations hot "src/(ops|quantizers)/"
  layers hot "src/(core/|layers/(input|linear_layer|moe_layer|weights))"
  compare hot "src/checkpoint/compare/"
  sample hot "src/checkpoint/sample/"
  machine cold "src/(backends/cuda/gemm/tune|platform/[a-z]+/|version)"
  report cold "src/report/"
  commands cold "src/(commands|selftest)/"
  command cold "cli/")
function(nvfp4_unite target)
  if(NOT NVFP4_UNITY)
    return()
  endif()
  get_target_property(files ${target} SOURCES)
  string(REPLACE "${PROJECT_SOURCE_DIR}/" "" files "${files}")
  list(LENGTH NVFP4_UNITS fields)
  math(EXPR last "${fields} - 1")
  set(united)
  foreach(row RANGE 0 ${last} 3)
    list(SUBLIST NVFP4_UNITS ${row} 3 unit)
    list(POP_FRONT unit name mark pattern)
    set(members ${files})
    list(FILTER members INCLUDE REGEX "^(${pattern}).*\\.cc$")
    if(members)
      list(REMOVE_ITEM files ${members})
      list(TRANSFORM members REPLACE "(.+)" "#include \"${PROJECT_SOURCE_DIR}/\\1\"\n")
      list(JOIN members "" text)
      set(unit ${PROJECT_BINARY_DIR}/unity/${name}.cc)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
      list(APPEND united ${unit})
      if(mark STREQUAL "cold")
        set_source_files_properties(${unit} PROPERTIES COMPILE_OPTIONS "${NVFP4_COLD_OPTIONS}")
        # g++ takes a precompiled header at another level of optimization up to version 12 only.
        if(NVFP4_COLD_OPTIONS AND NOT (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13))
          set_source_files_properties(${unit} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
        endif()
      endif()
    endif()
  endforeach()
  list(TRANSFORM files REPLACE "^(src|cli)/" "${PROJECT_SOURCE_DIR}/\\1/")
  set_target_properties(${target} PROPERTIES SOURCES "${united};${files}")
  # Each of these "included files" is compiled once.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
