# onnxtrain_libtorch(NAME ROOT [CUDA])
# Defines the target NAME: the libtorch in the folder ROOT (a Python wheel's package `torch`, or an unpacked libtorch),
# else, where ROOT is empty, Debian's. CUDA links its GPU kernels too.
#
# libtorch's own CMake package is not used. Debian's requires development files that are unused here, and a wheel's
# requires a CUDA toolkit, although these sources include no CUDA header.
function(onnxtrain_libtorch NAME ROOT)
  add_library(${NAME} INTERFACE)
  if(ROOT)
    onnxtrain_check_abi(${ROOT})
    set(include ${ROOT}/include ${ROOT}/include/torch/csrc/api/include)
    set(hints PATHS ${ROOT}/lib NO_DEFAULT_PATH)
  else()
    find_path(${NAME}_API torch/version.h PATHS /usr/include/torch/csrc/api/include REQUIRED)
    set(include ${${NAME}_API})
  endif()
  set(libraries torch_cpu c10)
  if(ARGV2 STREQUAL "CUDA")
    # Nothing calls into torch_cuda by name: its kernels register themselves when it is loaded.
    list(APPEND libraries torch_cuda c10_cuda)
    target_link_options(${NAME} INTERFACE -Wl,--no-as-needed)
  endif()
  foreach(library ${libraries})
    find_library(${NAME}_${library}_LIBRARY ${library} ${hints} REQUIRED)
    target_link_libraries(${NAME} INTERFACE ${${NAME}_${library}_LIBRARY})
  endforeach()
  target_include_directories(${NAME} SYSTEM INTERFACE ${include})
  # AT_PER_OPERATOR_HEADERS: only the declarations of the operators in use.
  target_compile_definitions(${NAME} INTERFACE AT_PER_OPERATOR_HEADERS)
endfunction()

function(onnxtrain_check_abi ROOT)
  set(config ${ROOT}/share/cmake/Torch/TorchConfig.cmake)
  if(NOT EXISTS ${config})
    message(FATAL_ERROR "${ROOT}: no libtorch (share/cmake/Torch/TorchConfig.cmake is missing)")
  endif()
  file(STRINGS ${config} old_abi REGEX "GLIBCXX_USE_CXX11_ABI=0")
  if(old_abi)
    message(FATAL_ERROR "${ROOT}: a libtorch of the old C++ ABI cannot be linked")
  endif()
endfunction()
