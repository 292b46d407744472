// Imports discrete Fourier transforms, as matrix products so that they are differentiable, and the window and filter
// tables of signal processing.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// Real and imaginary parts of equal shapes. An invalid imaginary part is zero.
struct Complex {
  Val re, im;
};

// Limits the prime factors of the length, since a factor p needs a table of p² elements. A transform of length n costs
// n·Σ factors.
inline constexpr int64_t kMaxPrimeLength = 4096;

constexpr int64_t kDirect = 128;  // lengths up to this take one matrix product

// Returns cos and sin of 2π·i·j/n for i < rows, j < columns. Reduces i·j modulo n before computing the angle, which
// keeps the precision for any length.
Complex MakeDftMatrix(Builder& b, DType dtype, int64_t rows, int64_t columns, int64_t n, bool inverse) {
  HostTensor cosine({dtype, {rows, columns}}), sine({dtype, {rows, columns}});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i * j % n) / static_cast<double>(n);
      cosine.Set(i * columns + j, std::cos(angle));
      sine.Set(i * columns + j, inverse ? std::sin(angle) : -std::sin(angle));
    }
  }
  return {b.Constant(std::move(cosine)), b.Constant(std::move(sine))};
}

// Applies a bilinear operator to complex values.
template <typename F>
Complex ComplexMultiply(Complex x, Complex w, F product) {
  if (!x.im) return {product(x.re, w.re), product(x.re, w.im)};
  return {product(x.re, w.re) - product(x.im, w.im), product(x.re, w.im) + product(x.im, w.re)};
}

template <typename F>
Complex Each(Complex x, F f) {
  return {f(x.re), x.im ? f(x.im) : Val()};
}

Complex Direct(Complex x, int64_t n, bool inverse) {
  const Complex waves = MakeDftMatrix(x.re.b(), x.re.dtype(), n, n, n, inverse);
  return ComplexMultiply(x, waves, [](Val v, Val w) { return MatMul(v, w); });
}

// Returns the largest divisor of n up to kDirect.
int64_t Factor(int64_t n) {
  for (int64_t f = std::min(kDirect, n); f > 1; --f) {
    if (n % f == 0) return f;
  }
  return 1;
}

// Transforms x [M,n] (Cooley and Tukey, 1965): for n = a·b, input index b·i + j and output index k + a·l, transforms
// over i, multiplies by exp(∓2πi·j·k/n), and transforms over j.
absl::StatusOr<Complex> Transform(Complex x, bool inverse) {
  const int64_t rows = x.re.dim(0), n = x.re.dim(1), a = n <= kDirect ? n : Factor(n), b = n / a;
  if (b == 1) return Direct(x, n, inverse);
  if (a == 1) {
    if (n > kMaxPrimeLength)
      return absl::UnimplementedError(StrCat("a transform of length ", n, ", which has no factor up to ", kDirect,
                                             ", is above the limit of ", kMaxPrimeLength));
    return Direct(x, n, inverse);
  }
  x = Each(x, [&](Val v) { return Reshape(Transpose(Reshape(v, {rows, a, b}), {0, 2, 1}), {rows * b, a}); });
  x = Each(Direct(x, a, inverse), [&](Val v) { return Reshape(v, {rows, b, a}); });
  x = ComplexMultiply(x, MakeDftMatrix(x.re.b(), x.re.dtype(), b, a, n, inverse), [](Val v, Val w) { return v * w; });
  x = Each(x, [&](Val v) { return Reshape(Transpose(v, {0, 2, 1}), {rows * a, b}); });
  ASSIGN_OR_RETURN(x, Transform(x, inverse));
  return Each(x, [&](Val v) { return Reshape(Transpose(Reshape(v, {rows, a, b}), {0, 2, 1}), {rows, n}); });
}

// Returns y[…,k] = Σ_n x[…,n]·exp(∓2πi·k·n/N) along the last axis, unscaled; the sign is + with `inverse`. Fails on an
// empty axis and on prime factors of the length above kMaxPrimeLength. The result has both parts.
absl::StatusOr<Complex> FourierTransform(Complex x, bool inverse) {
  if (!x.re.valid()) return Complex{};
  const Shape shape = x.re.shape();
  if (shape.empty() || shape.back() < 1) return Invalid("a transform along an empty axis of ", ToString(shape));
  const int64_t n = shape.back();
  ASSIGN_OR_RETURN(x, Transform(Each(x, [&](Val v) { return Reshape(v, {NumElements(shape) / n, n}); }), inverse));
  return Each(x, [&](Val v) { return Reshape(v, shape); });
}

// Converts [..., 1 or 2] to real or complex numbers.
absl::StatusOr<Complex> SplitComplex(Val x) {
  if (!x.valid() || !IsFloat(x.dtype()) || x.rank() < 2 || (x.dim(-1) != 1 && x.dim(-1) != 2)) {
    return Invalid("expected a signal [..., 1 or 2], got ", ToString(x.type()));
  }
  const Shape shape(x.shape().begin(), x.shape().end() - 1);
  const bool complex = x.dim(-1) == 2;
  auto part = [&](int64_t i) { return Reshape(Slice(x, shape.size(), i, 1), shape); };
  return Complex{part(0), complex ? part(1) : Val()};
}

Val Joined(Complex x) {
  auto column = [](Val v) {
    Shape shape = v.shape();
    shape.push_back(1);
    return Reshape(v, std::move(shape));
  };
  return x.im ? Concat({column(x.re), column(x.im)}, x.re.rank()) : column(x.re);
}

Val AxisLast(Val x, int64_t axis) {
  std::vector<int64_t> perm(x.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + axis, perm.begin() + axis + 1, perm.end());
  return Transpose(x, std::move(perm));
}
Val LastToAxis(Val x, int64_t axis) {
  std::vector<int64_t> perm(x.rank());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + axis, perm.end() - 1, perm.end());
  return Transpose(x, std::move(perm));
}

// Cuts the last axis to n elements or pads it with zeros.
Val Fitted(Val x, int64_t n) {
  const int64_t have = x.dim(-1);
  if (have > n) return Slice(x, x.rank() - 1, 0, n);
  if (have == n || !x.valid()) return x;
  std::vector<int64_t> pads(2 * x.rank(), 0);
  pads.back() = n - have;
  return x.b().Op("Pad", {x}, {{"pads", std::move(pads)}, {"value", 0.0}});
}

// Extends the first n/2 + 1 of n values to all n; the others are conjugates.
Complex Unfolded(Complex x, int64_t n) {
  const int64_t half = n / 2 + 1, rest = n - half, last = x.re.rank() - 1;
  if (!x.im) x.im = ZerosLike(x.re);
  x = Each(x, [&](Val v) { return Fitted(v, half); });
  std::vector<int64_t> mirror(rest);
  for (int64_t i = 0; i < rest; ++i) mirror[i] = rest - i;
  return {Concat({x.re, GatherConstant(x.re, mirror, last)}, last),
          Concat({x.im, -GatherConstant(x.im, mirror, last)}, last)};
}

struct Dft {
  int64_t axis, length;
  bool inverse, onesided;
};

absl::StatusOr<Dft> ReadDft(ImportContext& c) {
  Dft d{.inverse = c.attrs().Int("inverse") != 0, .onesided = c.attrs().Int("onesided") != 0};
  const int64_t rank = c.in(0).rank();
  int64_t axis = c.has(2) ? 0 : c.since(20, int64_t{-2}, c.attrs().Int("axis", 1));
  if (c.has(2)) {
    ASSIGN_OR_RETURN(axis, KnownInt(c, 2, "axis"));
  }
  ASSIGN_OR_RETURN(d.axis, NormalizeAxis(axis, rank));
  if (d.axis == rank - 1) return Invalid("axis ", axis, " holds the parts of the numbers");
  const int64_t extent = c.in(0).dim(static_cast<int>(d.axis));
  d.length = d.onesided && d.inverse ? 2 * (extent - 1) : extent;
  if (c.has(1)) {
    ASSIGN_OR_RETURN(d.length, KnownInt(c, 1, "dft_length"));
  }
  if (d.length < 1) return Invalid("a transform of length ", d.length);
  RETURN_IF_ERROR(CheckHostConstant({DType::kFloat64, {d.length}}));  // twiddle factors
  return d;
}

ImportOr ImportDft(ImportContext& c) {
  if (c.in(0).rank() < 2) return Invalid("expected a signal [..., 1 or 2], got ", ToString(c.in(0).type()));
  ASSIGN_OR_RETURN(const Dft d, ReadDft(c));
  ASSIGN_OR_RETURN(Complex x, SplitComplex(c.in(0)));
  x = Each(x, [&](Val v) { return AxisLast(v, d.axis); });
  if (d.onesided && !d.inverse && x.im) return Invalid("a one-sided transform of complex numbers");
  x = d.onesided && d.inverse ? Unfolded(x, d.length) : Each(x, [&](Val v) { return Fitted(v, d.length); });
  ASSIGN_OR_RETURN(x, FourierTransform(x, d.inverse));
  if (d.inverse) x = Each(x, [&](Val v) { return v * (1.0 / static_cast<double>(d.length)); });
  if (d.onesided && d.inverse) x.im = Val();
  if (d.onesided && !d.inverse) x = Each(x, [&](Val v) { return Fitted(v, d.length / 2 + 1); });
  return One(Joined(Each(x, [&](Val v) { return LastToAxis(v, d.axis); })));
}

struct Frames {
  int64_t length, step, count;
};

absl::StatusOr<Frames> ReadFrames(ImportContext& c) {
  const int64_t signal = c.in(0).dim(1);
  Frames f{.length = signal};
  ASSIGN_OR_RETURN(f.step, KnownInt(c, 1, "frame_step"));
  if (c.has(2)) {
    if (c.in(2).rank() != 1) return Invalid("expected a window [n], got ", ToString(c.in(2).type()));
    f.length = c.in(2).dim(0);
  }
  if (c.has(3)) {
    ASSIGN_OR_RETURN(f.length, KnownInt(c, 3, "frame_length"));
  }
  if (f.step < 1) return Invalid("frame_step is ", f.step, ", it should be at least 1");
  if (f.length < 1 || f.length > signal) return Invalid("a frame of length ", f.length, " in a signal of ", signal);
  if (c.has(2) && c.in(2).dim(0) != f.length)
    return Invalid("a window of ", c.in(2).dim(0), " for a frame of length ", f.length);
  f.count = (signal - f.length) / f.step + 1;
  RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {f.count, f.length}}));
  return f;
}

ImportOr ImportStft(ImportContext& c) {
  const int64_t rank = c.in(0).rank();
  if (rank != 2 && rank != 3)
    return Invalid("expected a signal [batch, length] or [batch, length, 1 or 2], got ", ToString(c.in(0).type()));
  ASSIGN_OR_RETURN(const Frames f, ReadFrames(c));
  Complex x{c.in(0), Val()};  // a real signal without the axis of parts, as exporters write it
  if (rank == 3) {
    ASSIGN_OR_RETURN(x, SplitComplex(c.in(0)));
  }
  const bool onesided = c.attrs().Int("onesided", 1) != 0;
  if (onesided && x.im) return Invalid("a one-sided transform of complex numbers");
  std::vector<int64_t> places(f.count * f.length);
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int64_t>(i) / f.length * f.step + static_cast<int64_t>(i) % f.length;
  const Shape framed = {c.in(0).dim(0), f.count, f.length};
  x = Each(x, [&](Val v) { return Reshape(GatherConstant(v, places, 1), framed); });
  if (c.has(2)) x = Each(x, [&](Val v) { return v * Cast(c.in(2), v.dtype()); });
  ASSIGN_OR_RETURN(x, FourierTransform(x, false));
  if (onesided) x = Each(x, [&](Val v) { return Fitted(v, f.length / 2 + 1); });
  return One(Joined(x));
}

absl::StatusOr<DType> OutputType(const ImportContext& c) { return ElementType(c.attrs().Int("output_datatype", 1)); }

// Coefficients of w[n] = a₀ − a₁·cos(2πn/N) + a₂·cos(4πn/N). N is the size, or the size − 1 for a symmetric window.
struct Cosines {
  double a0, a1, a2;
};

template <const Cosines& kCosines>
ImportOr ImportWindow(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t size, KnownInt(c, 0, "size"));
  ASSIGN_OR_RETURN(const DType dtype, OutputType(c));
  const Type type{dtype, {size}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  const int64_t period = c.attrs().Int("periodic", 1) != 0 ? size : size - 1;
  HostTensor window(type);
  for (int64_t i = 0; i < size; ++i) {
    const double angle = period == 0 ? 0 : 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period);
    window.Set(i, kCosines.a0 - kCosines.a1 * std::cos(angle) + kCosines.a2 * std::cos(2 * angle));
  }
  return One(c.b().Constant(std::move(window)));
}

constexpr Cosines kHann = {0.5, 0.5, 0}, kHamming = {25.0 / 46, 21.0 / 46, 0}, kBlackman = {0.42, 0.5, 0.08};

struct Mel {
  int64_t bands, bins, dft_length, rate;
  double low, high;
};

absl::StatusOr<Mel> ReadMel(ImportContext& c) {
  Mel m{};
  ASSIGN_OR_RETURN(m.bands, KnownInt(c, 0, "num_mel_bins"));
  ASSIGN_OR_RETURN(m.dft_length, KnownInt(c, 1, "dft_length"));
  ASSIGN_OR_RETURN(m.rate, KnownInt(c, 2, "sample_rate"));
  ASSIGN_OR_RETURN(m.low, KnownDouble(c, 3, "lower_edge_hertz"));
  ASSIGN_OR_RETURN(m.high, KnownDouble(c, 4, "upper_edge_hertz"));
  constexpr int64_t kMaxBands = int64_t{1} << 20, kLongest = int64_t{1} << 28;
  if (m.bands < 0 || m.bands > kMaxBands || m.dft_length < 0 || m.dft_length > kLongest || m.rate < 1) {
    return Invalid(m.bands, " bands of ", m.dft_length, " bins at ", m.rate, " Hz");
  }
  m.bins = m.dft_length / 2 + 1;
  return m;
}

// Returns the bins at which the triangles begin, peak and end, equally spaced on the mel scale.
absl::StatusOr<std::vector<int64_t>> MelEdges(const Mel& m) {
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel(m.high) - mel(m.low)) / static_cast<double>(m.bands + 2);
  std::vector<int64_t> edges(m.bands + 2);
  for (size_t i = 0; i < edges.size(); ++i) {
    const double hertz = 700 * (std::pow(10.0, (mel(m.low) + static_cast<double>(i) * step) / 2595) - 1);
    const double bin = std::floor(static_cast<double>(m.dft_length + 1) * hertz / static_cast<double>(m.rate));
    if (!(bin >= 0 && bin < static_cast<double>(m.bins)))
      return Invalid("the band from ", m.low, " to ", m.high, " Hz is outside the spectrum");
    edges[i] = static_cast<int64_t>(bin);
  }
  return edges;
}

ImportOr ImportMelWeights(ImportContext& c) {
  ASSIGN_OR_RETURN(const Mel m, ReadMel(c));
  ASSIGN_OR_RETURN(const DType dtype, OutputType(c));
  RETURN_IF_ERROR(CheckHostConstant({dtype, {m.bins, m.bands}}));
  ASSIGN_OR_RETURN(const std::vector<int64_t> edges, MelEdges(m));
  HostTensor weights({dtype, {m.bins, m.bands}});
  for (int64_t band = 0; band < m.bands; ++band) {
    const int64_t begin = edges[band], peak = edges[band + 1], end = edges[band + 2];
    if (begin == peak) weights.Set(peak * m.bands + band, 1);
    for (int64_t bin = begin; begin != peak && bin <= peak; ++bin) {
      weights.Set(bin * m.bands + band, static_cast<double>(bin - begin) / static_cast<double>(peak - begin));
    }
    for (int64_t bin = peak; peak != end && bin < end; ++bin) {
      weights.Set(bin * m.bands + band, static_cast<double>(end - bin) / static_cast<double>(end - peak));
    }
  }
  return One(c.b().Constant(std::move(weights)));
}

}  // namespace

std::span<const OnnxOp> SignalImports() {
  static const OnnxOp ops[] = {
      {"", "DFT", 1, 3, ImportDft},
      {"", "STFT", 2, 4, ImportStft},
      {"", "HannWindow", 1, 1, ImportWindow<kHann>, {.type_attr = "output_datatype", .type_defaults_to_float = true}},
      {"",
       "HammingWindow",
       1,
       1,
       ImportWindow<kHamming>,
       {.type_attr = "output_datatype", .type_defaults_to_float = true}},
      {"",
       "BlackmanWindow",
       1,
       1,
       ImportWindow<kBlackman>,
       {.type_attr = "output_datatype", .type_defaults_to_float = true}},
      {"", "MelWeightMatrix", 5, 5, ImportMelWeights, {.type_attr = "output_datatype", .type_defaults_to_float = true}},
  };
  return ops;
}

}  // namespace onnxtrain
