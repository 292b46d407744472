# One target per folder. Third-party libraries are linked PRIVATE, so that no other folder can use them by accident.
# ccache caches nothing that uses a precompiled header without this sloppiness. Relative paths let clones share results.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
                                  CCACHE_NOHASHDIR=1 ${CCACHE})
endif()
if(NOT CMAKE_CROSSCOMPILING)  # GCC looks for a linker of the other machine's name
  find_program(MOLD mold)
endif()
if(MOLD AND NOT ONNXTRAIN_SANITIZER)
  add_link_options(-fuse-ld=mold)
endif()
# Leaves out functions that nothing calls, and all but one of those with the same code: no code may compare addresses of
# functions that can have it.
if(CMAKE_BUILD_TYPE STREQUAL "MinSizeRel")
  add_compile_options(-ffunction-sections -fdata-sections)
  add_link_options(-Wl,--gc-sections -s)
  if(MOLD)
    add_link_options(-Wl,--icf=all)
  endif()
endif()
# Calls within a library need no lookup by name when it is loaded.
add_link_options(-Wl,-Bsymbolic-functions)
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(CMAKE_COMPILE_WARNING_AS_ERROR AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 takes the other alternatives of a moved std::variant (attributes of an operator row) for uninitialized.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
if(ONNXTRAIN_SANITIZER)
  add_compile_options(-fsanitize=${ONNXTRAIN_SANITIZER} -fno-omit-frame-pointer)
  add_compile_definitions(ONNXTRAIN_SANITIZER)
  add_link_options(-fsanitize=${ONNXTRAIN_SANITIZER})
endif()

# Precompiles the headers that nearly every file includes, which halves compile time. Sources still include what they
# use: -DONNXTRAIN_PRECOMPILED_HEADERS=OFF builds without. Takes further headers.
option(ONNXTRAIN_PRECOMPILED_HEADERS "Precompile the headers that most files include" ON)
function(onnxtrain_precompile NAME)
  if(ONNXTRAIN_PRECOMPILED_HEADERS)
    target_precompile_headers(${NAME} PRIVATE <algorithm> <functional> <map> <memory> <optional> <set> <span> <string>
      <string_view> <utility> <variant> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h>
      <absl/strings/str_join.h> ${ARGN})
  endif()
endfunction()

# Compiles groups of the target's sources at once, which parses headers once per group. The groups name sources relative
# to the root, so that a compiler cache serves every clone. Configure again where an edited source has a local name that
# another source of its group has.
option(ONNXTRAIN_UNITY "Compile groups of sources at once" OFF)
if(ONNXTRAIN_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC takes a source in a group for a header, whose types must not hold types of anonymous namespaces.
  add_compile_options(-Wno-subobject-linkage)
endif()
set(ONNXTRAIN_UNITY_FILES 8 CACHE STRING "Sources of a group")
function(onnxtrain_unity NAME)
  if(NOT ONNXTRAIN_UNITY)
    return()
  endif()
  get_target_property(sources ${NAME} SOURCES)
  list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  set(grouped "")
  foreach(source ${sources})
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(source MATCHES "^${CMAKE_SOURCE_DIR}/.*\\.cc$" AND NOT source MATCHES "^${CMAKE_BINARY_DIR}/" AND NOT definitions
       AND NOT options)
      list(APPEND grouped ${source})
    endif()
  endforeach()
  list(REMOVE_ITEM sources ${grouped})
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/unity_groups.py
                          ${CMAKE_CURRENT_BINARY_DIR}/unity_${NAME} ${ONNXTRAIN_UNITY_FILES} ${grouped}
                  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE units COMMAND_ERROR_IS_FATAL ANY
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" units "${units}")
  set_property(TARGET ${NAME} PROPERTY SOURCES ${sources} ${units})
endfunction()

# onnxtrain_folder(NAME DEPS folder targets... LIBRARIES third-party targets...)
# Defines the object library NAME of all .cc files in the current folder and in SUBFOLDERS.
function(onnxtrain_folder NAME)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBRARIES;SUBFOLDERS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  foreach(sub ${ARG_SUBFOLDERS})
    file(GLOB more CONFIGURE_DEPENDS ${sub}/*.cc)
    list(APPEND sources ${more})
  endforeach()
  add_library(${NAME} OBJECT ${sources})
  target_include_directories(${NAME} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  target_link_libraries(${NAME} PUBLIC absl::statusor absl::strings absl::str_format absl::span ${ARG_DEPS}
                                PRIVATE ${ARG_LIBRARIES})
  onnxtrain_precompile(${NAME})
  onnxtrain_unity(${NAME})
endfunction()
