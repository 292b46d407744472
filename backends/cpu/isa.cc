#include "backends/cpu/isa.h"

namespace onnxtrain::cpu {

Isa CurrentIsa() {
#if defined(__x86_64__)
  static const Isa isa = [] {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return avx512 && avx2 ? Isa::kAvx512 : avx2 ? Isa::kAvx2 : Isa::kBase;
  }();
  return isa;
#else
  return Isa::kBase;
#endif
}

std::string_view NameOf(Isa isa) {
  switch (isa) {
    case Isa::kBase: return "baseline";
    case Isa::kAvx2: return "AVX2";
    case Isa::kAvx512: return "AVX-512";
  }
  return "";
}

}  // namespace onnxtrain::cpu
