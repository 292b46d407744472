// Candidates for the elementary functions of backends/cpu, over rows of floats.
#include "backends/cpu/kernels/vector_math-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "tools/bench/vector_math.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename Op>
void Map(const float* x, float* y, int64_t n) {
  ForVectors<1>({x}, n, y, [](const VecF32* in) { return Op::F(in[0]); });
}

template <float (*F)(float)>
void MapScalar(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F(x[i]);
}

#define CANDIDATE(NAME, EXPRESSION)                           \
  struct NAME##Candidate {                                    \
    HWY_ATTR static VecF32 F(VecF32 x) { return EXPRESSION; } \
  };
CANDIDATE(Exp, VecExp(x))
CANDIDATE(Expm1, VecExpm1(x))
CANDIDATE(Log, VecLog(x))
CANDIDATE(Log1p, VecLog1p(x))
CANDIDATE(Tanh, VecTanh(x))
CANDIDATE(Atanh, VecAtanh(x))
CANDIDATE(Acosh, VecAcosh(x))
CANDIDATE(Asinh, VecAsinh(x))
CANDIDATE(Cosh, VecCosh(x))
CANDIDATE(Sinh, VecSinh(x))
CANDIDATE(Atan, VecAtan(x))
CANDIDATE(Acos, VecAcos(x))
CANDIDATE(Asin, VecAsin(x))
CANDIDATE(Tan, VecTan(x))
CANDIDATE(Cos, VecCos(x))
CANDIDATE(Sin, VecSin(x))
#define HIGHWAY(NAME) CANDIDATE(Highway##NAME, hn::NAME(VecF32::Tag(), x.v))
HIGHWAY(Exp)
HIGHWAY(Expm1)
HIGHWAY(Log)
HIGHWAY(Log1p)
HIGHWAY(Tanh)
HIGHWAY(Sin)
HIGHWAY(Cos)
HIGHWAY(Asin)
HIGHWAY(Acos)
HIGHWAY(Atan)
HIGHWAY(Sinh)
HIGHWAY(Asinh)
HIGHWAY(Acosh)
HIGHWAY(Atanh)
#undef HIGHWAY
#undef CANDIDATE

#define ROW(NAME, OURS, LIBRARY) \
  { #NAME, OURS, &Map < Highway##NAME##Candidate>, &MapScalar < LIBRARY> }

constexpr Candidates kCandidates[] = {
    ROW(Exp, &Map<ExpCandidate>, __builtin_expf),
    ROW(Expm1, &Map<Expm1Candidate>, __builtin_expm1f),
    ROW(Log, &Map<LogCandidate>, __builtin_logf),
    ROW(Log1p, &Map<Log1pCandidate>, __builtin_log1pf),
    ROW(Tanh, &Map<TanhCandidate>, __builtin_tanhf),
    ROW(Sin, &Map<SinCandidate>, __builtin_sinf),
    ROW(Cos, &Map<CosCandidate>, __builtin_cosf),
    {"Tan", &Map<TanCandidate>, nullptr, &MapScalar<__builtin_tanf>},
    {"Cosh", &Map<CoshCandidate>, nullptr, &MapScalar<__builtin_coshf>},
    ROW(Asin, &Map<AsinCandidate>, __builtin_asinf),
    ROW(Acos, &Map<AcosCandidate>, __builtin_acosf),
    ROW(Atan, &Map<AtanCandidate>, __builtin_atanf),
    ROW(Sinh, &Map<SinhCandidate>, __builtin_sinhf),
    ROW(Asinh, &Map<AsinhCandidate>, __builtin_asinhf),
    ROW(Acosh, &Map<AcoshCandidate>, __builtin_acoshf),
    ROW(Atanh, &Map<AtanhCandidate>, __builtin_atanhf),
};
#undef ROW

}  // namespace

std::span<const Candidates> CandidateTable() { return kCandidates; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
