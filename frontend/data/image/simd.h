// Vector code for processors that have more than the build requires.
#pragma once

// Compiles a function also for AVX2, without fused products: the results are equal.
#if defined(__x86_64__) && !defined(__clang__) && !defined(ONNXTRAIN_SANITIZER)
#define ONNXTRAIN_FOR_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define ONNXTRAIN_FOR_AVX2
#endif
