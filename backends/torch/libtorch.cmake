# The target onnxtrain_libtorch: Debian's libtorch, or with ONNXTRAIN_CUDA or a CMAKE_PREFIX_PATH that holds one, the
# libtorch found there. Debian's own CMake package is not used: it asks for development files that nothing here needs.
add_library(onnxtrain_libtorch INTERFACE)
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)  # tests/ops_autograd links it too
find_package(Torch QUIET NO_DEFAULT_PATH PATHS ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
if(Torch_FOUND OR ONNXTRAIN_CUDA)
  find_package(Torch REQUIRED)
  target_link_libraries(onnxtrain_libtorch INTERFACE ${TORCH_LIBRARIES})
  separate_arguments(flags NATIVE_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(onnxtrain_libtorch INTERFACE ${flags})
else()
  find_library(TORCH_CPU_LIBRARY torch_cpu REQUIRED)
  find_library(TORCH_LIBRARY torch REQUIRED)
  find_library(C10_LIBRARY c10 REQUIRED)
  find_path(TORCH_API_INCLUDE torch/version.h PATHS /usr/include/torch/csrc/api/include REQUIRED)
  target_include_directories(onnxtrain_libtorch SYSTEM INTERFACE ${TORCH_API_INCLUDE})
  target_link_libraries(onnxtrain_libtorch INTERFACE ${TORCH_CPU_LIBRARY} ${TORCH_LIBRARY} ${C10_LIBRARY})
  target_compile_definitions(onnxtrain_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
endif()
# Only the declarations of the operators in use.
target_compile_definitions(onnxtrain_libtorch INTERFACE AT_PER_OPERATOR_HEADERS)
