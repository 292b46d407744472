// Resizing along axes, by nearest elements or by linear or cubic kernels.
#include "frontend/ops/resample.h"
#include "frontend/ops/export/onnx_export.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

double Hat(double d) { return std::max(0.0, 1 - std::fabs(d)); }

// Keys, "Cubic convolution interpolation for digital image processing" (1981), equation (4).
double Cubic(double d, double a) {
  d = std::fabs(d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

double RoundUp(double x) { return std::floor(x + 0.5); }
double RoundDown(double x) { return std::ceil(x - 0.5); }
double Floor(double x) { return std::floor(x); }
double Ceil(double x) { return std::ceil(x); }

struct Rounding {
  std::string_view name;
  double (*round)(double);
};
constexpr Rounding kRoundings[] = {
    {"floor", Floor}, {"ceil", Ceil}, {"round_prefer_floor", RoundDown}, {"round_prefer_ceil", RoundUp}};

const Rounding* FindRounding(std::string_view name) {
  for (const Rounding& r : kRoundings) {
    if (r.name == name) return &r;
  }
  return nullptr;
}

struct Filter {
  bool nearest, cubic, exclude_outside, zero_outside;
  const Rounding* rounding;
  double a;

  static Filter FromAttrs(const Attrs& attrs) {
    const std::string mode = attrs.String("mode");
    return {mode == "nearest",
            mode == "cubic",
            attrs.Int("exclude_outside") != 0,
            attrs.Int("zero_outside") != 0,
            FindRounding(attrs.String("rounding", "floor")),
            attrs.Float("cubic_a", -0.75)};
  }
  double operator()(double distance) const { return cubic ? Cubic(distance, a) : Hat(distance); }
};

// Builds the taps of one output after the other.
class TapsBuilder {
 public:
  TapsBuilder(Taps* taps, const Filter& filter, double stretch) : t_(*taps), filter_(filter), stretch_(stretch) {}

  void Add(double x) {
    const auto last = static_cast<double>(t_.in - 1);
    if (!(filter_.zero_outside && (x < 0 || x > last))) filter_.nearest ? Nearest(x) : Weighted(x);
    t_.begin.push_back(static_cast<int64_t>(t_.index.size()));
  }

 private:
  void Nearest(double x) { Put(static_cast<int64_t>(filter_.rounding->round(x)), 1); }

  void Weighted(double x) {
    const size_t first = t_.index.size();
    const auto base = static_cast<int64_t>(std::floor(x));
    const auto start = static_cast<int64_t>(std::floor(filter_.cubic ? -2 * stretch_ : -stretch_)) + 1;
    double sum = 0;
    for (int64_t i = base + start; i <= base + 1 - start; ++i) {
      if (filter_.exclude_outside && (i < 0 || i >= t_.in)) continue;
      const double w = filter_((static_cast<double>(i) - x) / stretch_);
      sum += w;
      if (w != 0) Put(i, w, first);
    }
    if ((stretch_ == 1 && !filter_.exclude_outside) || sum == 0) return;
    for (size_t k = first; k < t_.weight.size(); ++k) t_.weight[k] /= sum;
  }

  // Maps positions outside the input to the border element.
  void Put(int64_t i, double w, size_t first) {
    i = std::clamp<int64_t>(i, 0, t_.in - 1);
    if (t_.index.size() > first && t_.index.back() == i) {
      t_.weight.back() += w;
      return;
    }
    t_.index.push_back(i);
    t_.weight.push_back(w);
  }
  void Put(int64_t i, double w) { Put(i, w, t_.index.size()); }

  Taps& t_;
  const Filter& filter_;
  double stretch_;
};

// Returns the position of output o in x, clamped far outside. Rounds the quotient for `nearest`, since otherwise the
// result could depend on the last bit of a scale such as 1.6, which files store in float32.
double SourcePosition(int64_t o, const double* p, bool nearest) {
  double x = (static_cast<double>(o) + p[0]) * p[1] / p[2];
  if (nearest) x = static_cast<float>(x);
  x += p[3];
  return std::isnan(x) ? 0 : std::clamp(x, -1e12, 1e12);
}

constexpr double kLimit = int64_t{1} << 31;
constexpr double kMaxTaps = int64_t{1} << 28;  // limit for the taps of one axis

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

absl::Status CheckFilter(const Attrs& attrs) {
  const std::string mode = attrs.String("mode");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    return Invalid("mode '", mode, "' is none of nearest, linear, cubic");
  if (FindRounding(attrs.String("rounding")) == nullptr)
    return Invalid("rounding '", attrs.String("rounding"), "' is unknown");
  return std::isfinite(attrs.Float("cubic_a")) ? absl::OkStatus() : Invalid("cubic_a is not finite");
}

absl::Status CheckPositions(const Attrs& attrs, size_t axes) {
  const std::vector<double> position = attrs.Floats("position"), stretch = attrs.Floats("stretch");
  if (position.size() != 4 * axes || !AllFinite(position))
    return Invalid("position should have 4 finite numbers per axis");
  for (size_t i = 0; i < axes; ++i) {
    if (position[4 * i + 2] == 0) return Invalid("a position divides by 0");
  }
  const auto fits = [](double s) { return s >= 1 && s < kLimit; };
  const bool ok = stretch.size() == axes && std::all_of(stretch.begin(), stretch.end(), fits);
  return ok ? absl::OkStatus() : Invalid("stretch should have a number of at least 1 per axis");
}

// Checks the attributes for resizing extents `in` at `axes` to `out`.
absl::Status CheckExtents(const Attrs& attrs, const Shape& in, const Shape& out) {
  const std::vector<int64_t> axes = attrs.Ints("axes");
  const std::vector<double> stretch = attrs.Floats("stretch");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t from = in[axes[i]], to = out[axes[i]];
    if (from < 0 || to < 0 || from >= kLimit || to >= kLimit || (from == 0 && to > 0)) {
      return Invalid("cannot resize axis ", axes[i], " from ", from, " to ", to);
    }
    if (to > 0 && stretch[i] * static_cast<double>(to) > kMaxTaps)
      return Invalid("a filter stretched by ", stretch[i], " is too wide");
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> Resized(const Shape& shape, const Attrs& attrs, std::string_view extents) {
  const std::vector<int64_t> axes = attrs.Ints("axes"), sizes = attrs.Ints(extents);
  if (!axes.empty()) RETURN_IF_ERROR(AxesMask(axes, static_cast<int>(shape.size())).status());
  if (sizes.size() != axes.size())
    return Invalid(extents, " ", ToString(sizes), " should have ", axes.size(), " entries");
  Shape resized = shape;
  for (size_t i = 0; i < axes.size(); ++i) resized[axes[i]] = sizes[i];
  return resized;
}

TypesOr ResampleTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckFilter(c.attrs));
  ASSIGN_OR_RETURN(Shape y, Resized(c.in(0).shape, c.attrs, "sizes"));
  RETURN_IF_ERROR(CheckPositions(c.attrs, c.attrs.Ints("axes").size()));
  RETURN_IF_ERROR(CheckExtents(c.attrs, c.in(0).shape, y));
  return std::vector<Type>{{c.in(0).dtype, std::move(y)}};
}

TypesOr ResampleGradTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckFilter(c.attrs));
  ASSIGN_OR_RETURN(Shape x, Resized(c.in(0).shape, c.attrs, "input_sizes"));
  RETURN_IF_ERROR(CheckPositions(c.attrs, c.attrs.Ints("axes").size()));
  RETURN_IF_ERROR(CheckExtents(c.attrs, x, c.in(0).shape));
  ASSIGN_OR_RETURN(const Shape y, Resized(c.in(0).shape, c.attrs, "sizes"));
  RETURN_IF_ERROR(RequireShape(c, 0, y));
  return std::vector<Type>{{c.in(0).dtype, std::move(x)}};
}

std::vector<Val> ResampleGradient(const GradContext& c) {
  Attrs attrs = c.node.attrs;
  std::vector<int64_t> sizes;
  for (int64_t axis : attrs.Ints("axes")) sizes.push_back(c.x(0).dim(static_cast<int>(axis)));
  attrs.Set("input_sizes", sizes);
  return {c.b.Op("ResampleGrad", {c.dy()}, std::move(attrs))};
}

std::vector<Val> ResampleGradGradient(const GradContext& c) {
  Attrs attrs = c.node.attrs;
  attrs.Erase("input_sizes");
  return {c.b.Op("Resample", {c.dy()}, std::move(attrs))};
}

std::vector<double> Along(const std::vector<double>& x, Shape* shape, const Taps& t) {
  int64_t outer = 1, inner = 1;
  for (int64_t a = 0; a < static_cast<int64_t>(shape->size()); ++a) {
    if (a != t.axis) (a < t.axis ? outer : inner) *= (*shape)[a];
  }
  (*shape)[t.axis] = t.out();
  std::vector<double> y(NumElements(*shape), 0);
  for (int64_t row = 0; row < outer * t.out(); ++row) {
    const int64_t block = row / t.out(), o = row % t.out();
    for (int64_t k = t.begin[o]; k < t.begin[o + 1]; ++k) {
      for (int64_t i = 0; i < inner; ++i)
        y[row * inner + i] += t.weight[k] * x[(block * t.in + t.index[k]) * inner + i];
    }
  }
  return y;
}

std::vector<HostTensor> Evaluated(const EvalContext& c, const std::vector<Taps>& taps) {
  std::vector<double> values = c.inputs[0]->ToDoubles();
  Shape shape = c.inputs[0]->shape();
  for (const Taps& t : taps) values = Along(values, &shape, t);
  return {HostTensor::FromDoubles(c.output_types[0], values)};
}

std::vector<HostTensor> EvaluateResample(const EvalContext& c) {
  return Evaluated(c, ResampleTaps(c.attrs, c.inputs[0]->shape()));
}

std::vector<HostTensor> EvaluateResampleGrad(const EvalContext& c) {
  std::vector<Taps> taps = ResampleTaps(c.attrs, c.output_types[0].shape);
  for (Taps& t : taps) t = t.Transposed();
  return Evaluated(c, taps);
}

std::vector<AttrSpec> ResampleAttrs() {
  const std::vector<int64_t> ints;
  const std::vector<double> numbers;
  return {{"axes", ints, true, AxisRole::kAxisList},
          {"sizes", ints, true},
          {"position", numbers, true},
          {"stretch", numbers, true},
          {"mode", std::string(), true},
          {"rounding", std::string("floor")},
          {"cubic_a", -0.75},
          {"exclude_outside", int64_t{0}},
          {"zero_outside", int64_t{0}}};
}

std::vector<AttrSpec> ResampleGradAttrs() {
  std::vector<AttrSpec> attrs = ResampleAttrs();
  attrs.push_back({"input_sizes", std::vector<int64_t>(), true});
  return attrs;
}

}  // namespace

int64_t Taps::most() const {
  int64_t most = 0;
  for (int64_t o = 0; o < out(); ++o) most = std::max(most, begin[o + 1] - begin[o]);
  return most;
}

Taps Taps::Transposed() const {
  Taps t{.axis = axis, .in = out(), .begin = std::vector<int64_t>(in + 1, 0), .index = {}, .weight = {}};
  for (int64_t i : index) ++t.begin[i + 1];
  for (int64_t i = 0; i < in; ++i) t.begin[i + 1] += t.begin[i];
  t.index.resize(index.size());
  t.weight.resize(index.size());
  std::vector<int64_t> next = t.begin;
  for (int64_t o = 0; o < out(); ++o) {
    for (int64_t k = begin[o]; k < begin[o + 1]; ++k) {
      const int64_t at = next[index[k]]++;
      t.index[at] = o;
      t.weight[at] = weight[k];
    }
  }
  return t;
}

std::vector<Taps> ResampleTaps(const Attrs& attrs, const Shape& x) {
  const std::vector<int64_t> axes = attrs.Ints("axes"), sizes = attrs.Ints("sizes");
  const std::vector<double> position = attrs.Floats("position"), stretch = attrs.Floats("stretch");
  const Filter filter = Filter::FromAttrs(attrs);
  std::vector<Taps> all;
  for (size_t i = 0; i < axes.size(); ++i) {
    Taps taps{.axis = axes[i], .in = x[axes[i]]};
    TapsBuilder builder(&taps, filter, stretch[i]);
    for (int64_t o = 0; o < sizes[i]; ++o) builder.Add(SourcePosition(o, &position[4 * i], filter.nearest));
    all.push_back(std::move(taps));
  }
  return all;
}

std::span<const OpRow> ResampleOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "Resample",
       .inputs = {1, 1},
       .attrs = ResampleAttrs(),
       .infer = ResampleTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = ResampleGradient,
       .evaluate = EvaluateResample,
       .layout = {.inputs = 1, .outputs = 1, .any_order = true},
       .emit = EmitResample},
      {.name = "ResampleGrad",
       .inputs = {1, 1},
       .attrs = ResampleGradAttrs(),
       .infer = ResampleGradTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = ResampleGradGradient,
       .evaluate = EvaluateResampleGrad,
       .layout = {.inputs = 1, .outputs = 1, .any_order = true},
       .is_gradient = true,
       .emit = EmitResample},
  };
  return *rows;
}

}  // namespace onnxtrain
