# Defines the target onnxtrain_libtorch: the libtorch in CMAKE_PREFIX_PATH (such as a Python wheel's), else Debian's.
#
# libtorch's own CMake package is not used. Debian's requires development files that are unused here, and a wheel's
# requires a CUDA toolkit, although these sources include no CUDA header: ONNXTRAIN_CUDA only links the GPU kernels.
add_library(onnxtrain_libtorch INTERFACE)
find_path(ONNXTRAIN_TORCH_CONFIG TorchConfig.cmake PATHS ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH}
          PATH_SUFFIXES Torch share/cmake/Torch NO_DEFAULT_PATH)
if(ONNXTRAIN_TORCH_CONFIG)
  file(STRINGS ${ONNXTRAIN_TORCH_CONFIG}/TorchConfig.cmake old_abi REGEX "GLIBCXX_USE_CXX11_ABI=0")
  if(old_abi)
    message(FATAL_ERROR "${ONNXTRAIN_TORCH_CONFIG}: a libtorch of the old C++ ABI cannot be linked")
  endif()
  get_filename_component(torch_root ${ONNXTRAIN_TORCH_CONFIG}/../../.. ABSOLUTE)
  set(torch_include ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
  set(torch_hints PATHS ${torch_root}/lib NO_DEFAULT_PATH)
else()
  find_path(ONNXTRAIN_TORCH_API torch/version.h PATHS /usr/include/torch/csrc/api/include REQUIRED)
  set(torch_include ${ONNXTRAIN_TORCH_API})
endif()

set(torch_libraries torch_cpu c10)
if(ONNXTRAIN_CUDA)
  # Nothing calls into torch_cuda by name: its kernels register themselves when it is loaded.
  list(APPEND torch_libraries torch_cuda c10_cuda)
  target_link_options(onnxtrain_libtorch INTERFACE -Wl,--no-as-needed)
endif()
foreach(library ${torch_libraries})
  string(TOUPPER ONNXTRAIN_${library}_LIBRARY found)
  find_library(${found} ${library} ${torch_hints} REQUIRED)
  target_link_libraries(onnxtrain_libtorch INTERFACE ${${found}})
endforeach()
target_include_directories(onnxtrain_libtorch SYSTEM INTERFACE ${torch_include})
# AT_PER_OPERATOR_HEADERS: only the declarations of the operators in use.
target_compile_definitions(onnxtrain_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 AT_PER_OPERATOR_HEADERS)
