# Highway and the targets that vector kernels are compiled for.
find_package(hwy REQUIRED)
# Compiles vector kernels for SSE4 (which oneDNN requires as well), AVX2 and AVX-512; elsewhere for Highway's targets.
add_library(onnxtrain_highway INTERFACE)
target_link_libraries(onnxtrain_highway INTERFACE hwy::hwy)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(onnxtrain_highway INTERFACE HWY_BASELINE_TARGETS=HWY_SSE4)
else()  # vectors of a size unknown to the compiler cannot be class members
  target_compile_definitions(onnxtrain_highway INTERFACE
    "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_RVV)")
endif()
