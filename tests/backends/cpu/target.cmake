# Tests choose the instruction set of the vector kernels.
target_link_libraries(${name} PRIVATE onnxtrain_highway)
# One test runs loops of parallel.h.
find_package(OpenMP REQUIRED)
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/backends/cpu/parallel_test.cc PROPERTIES
  COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(${name} PRIVATE ${OpenMP_CXX_LIBRARIES})
