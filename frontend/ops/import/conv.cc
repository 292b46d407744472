#include <algorithm>

#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

absl::Status RequireConvInputs(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  RETURN_IF_ERROR(RequireAnySpatial(c));
  if (c.in(1).rank() == c.in(0).rank()) return absl::OkStatus();
  return Invalid("cannot convolve ", ToString(c.in(0).type()), " with weights ", ToString(c.in(1).type()));
}

// Reads the windows of a convolution with the weights in(1) over an input with these spatial extents.
absl::StatusOr<Windows> ConvWindows(const ImportContext& c, std::span<const int64_t> extents) {
  const auto kernel = Spatial(c.in(1).shape());
  const Shape given = c.attrs().Ints("kernel_shape", Shape(kernel.begin(), kernel.end()));
  if (!std::equal(given.begin(), given.end(), kernel.begin(), kernel.end())) {
    return Invalid("kernel_shape ", ToString(given), " disagrees with weights ", ToString(c.in(1).type()));
  }
  return ImportWindows(c.attrs(), given, extents);
}

Attrs ConvAttrs(const Windows& w, const Attrs& from) {
  Attrs attrs = WindowAttrs(w);
  attrs.Set("group", from.Int("group", 1));
  return attrs;
}

absl::StatusOr<Val> Convolve(ImportContext& c) {
  RETURN_IF_ERROR(RequireConvInputs(c));
  ASSIGN_OR_RETURN(Windows w, ConvWindows(c, Spatial(c.in(0).shape())));
  ASSIGN_OR_RETURN(const Val x, CropNegativePads(c.in(0), &w));
  ASSIGN_OR_RETURN(const WindowAxes axes, FoldWindowAxes(x, std::move(w), false));
  const Val weights = FoldKernel(c.in(1), axes);
  return axes.Restore(c.b().Op("Conv", {axes.x, weights, c.in(2)}, ConvAttrs(axes.w, c.attrs())));
}

ImportOr ImportConv(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val y, Convolve(c));
  return std::vector<Val>{y};
}

struct Activation {
  std::string_view name;
  std::string_view parameters[2];
};

constexpr Activation kActivations[] = {
    {"Relu", {}},
    {"Sigmoid", {}},
    {"Tanh", {}},
    {"LeakyRelu", {"alpha"}},
    {"Clip", {"min", "max"}},
    {"HardSigmoid", {"alpha", "beta"}},
};

absl::StatusOr<Val> Activate(ImportContext& c, Val x) {
  const std::string name = c.attrs().String("activation");
  if (name.empty()) return x;
  const std::vector<double> values = c.attrs().Floats("activation_params");
  for (const Activation& a : kActivations) {
    if (a.name != name) continue;
    Attrs attrs;
    for (size_t i = 0; i < 2 && !a.parameters[i].empty(); ++i) {
      if (i >= values.size()) return Invalid("activation_params lacks the ", a.parameters[i], " of ", name);
      attrs.Set(std::string(a.parameters[i]), values[i]);
    }
    return c.b().Op(name, {x}, std::move(attrs));
  }
  return Unsupported(StrCat("activation '", name, "'"));
}

// Imports activation(conv(x, w) + b + z).
ImportOr ImportFusedConv(ImportContext& c) {
  ASSIGN_OR_RETURN(Val y, Convolve(c));
  if (c.has(3)) y = y + c.in(3);
  ASSIGN_OR_RETURN(y, Activate(c, y));
  return std::vector<Val>{y};
}

// Spatial output extents of a transposed convolution, and the pads that result in them.
struct TransposedExtents {
  Shape extents;
  Shape pads;  // begin of each axis
};

absl::StatusOr<TransposedExtents> ResolveTransposedExtents(const ImportContext& c, const Windows& w,
                                                           std::span<const int64_t> in) {
  const size_t n = w.axes();
  const Shape more = c.attrs().Ints("output_padding", Shape(n, 0));
  Shape wanted = c.attrs().Ints("output_shape");
  // Some exporters write the whole shape, with batch and channels.
  if (wanted.size() == n + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  const std::string auto_pad = c.attrs().String("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (more.size() != n || (!wanted.empty() && wanted.size() != n)) {
    return Invalid("output_padding ", ToString(more), " or output_shape ", ToString(wanted), " should have ", n,
                   " entries");
  }
  TransposedExtents result;
  for (size_t i = 0; i < n; ++i) {
    if (more[i] < 0 || more[i] >= (int64_t{1} << 31))
      return Invalid("output_padding ", ToString(more), " is out of range");
    const int64_t full = w.strides[i] * (in[i] - 1) + w.Reach(i) + more[i];
    if (wanted.empty() && !same) {
      result.pads.push_back(w.pads[i]);
      result.extents.push_back(full - w.pads[i] - w.pads[i + n]);
    } else {
      const int64_t extent = wanted.empty() ? in[i] * w.strides[i] : wanted[i];
      const int64_t total = std::max<int64_t>(0, full - std::max<int64_t>(0, extent));
      result.pads.push_back(auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2);
      result.extents.push_back(extent);
    }
    if (result.extents[i] < 1) return Invalid("output extents ", ToString(result.extents), " should be positive");
  }
  RETURN_IF_ERROR(CheckShape(result.extents));
  return result;
}

// Builds a ConvTranspose, whose output extent may exceed the elements that windows reach by at most stride − 1. Pads
// further elements, which are zero: at the begin for negative pads, at the end for output_padding ≥ stride.
absl::StatusOr<Val> Transposed(ImportContext& c, Windows w, const TransposedExtents& out) {
  const size_t n = w.axes();
  const auto in = Spatial(c.in(0).shape());
  Shape extents, outside(2 * n, 0);
  for (size_t i = 0; i < n; ++i) {
    const int64_t begin = std::max<int64_t>(0, out.pads[i]);
    outside[i] = begin - out.pads[i];
    const int64_t inner = out.extents[i] - outside[i];
    const int64_t most = in[i] * w.strides[i] - 1 + w.Reach(i) - begin;
    extents.push_back(std::min(inner, most));
    outside[i + n] = inner - extents[i];
    if (extents[i] < 1) return Invalid("pads leave nothing of spatial axis ", i);
    w.pads[i] = begin;
    w.pads[i + n] = std::max<int64_t>(0, (in[i] - 1) * w.strides[i] + w.Reach(i) - extents[i] - begin);
  }
  Attrs attrs = ConvAttrs(w, c.attrs());
  attrs.Set("output_shape", extents);
  return PadSpatial(c.b().Op("ConvTranspose", {c.in(0), c.in(1)}, std::move(attrs)), outside, 0);
}

ImportOr ImportConvTranspose(ImportContext& c) {
  RETURN_IF_ERROR(RequireConvInputs(c));
  RETURN_IF_ERROR(RequireSpatial(c));
  const auto in = Spatial(c.in(0).shape());
  ASSIGN_OR_RETURN(Windows w, ConvWindows(c, in));
  for (int64_t extent : in) {
    if (extent < 1 || extent >= (int64_t{1} << 31)) return Invalid("cannot transpose over ", ToString(c.in(0).type()));
  }
  ASSIGN_OR_RETURN(const TransposedExtents out, ResolveTransposedExtents(c, w, in));
  ASSIGN_OR_RETURN(Val y, Transposed(c, std::move(w), out));
  if (c.has(2)) y = y + UnsqueezeToChannels(c.in(2), c.in(0).rank());
  return std::vector<Val>{y};
}

}  // namespace

std::span<const OnnxOp> ConvImports() {
  static constexpr OnnxOp ops[] = {
      {"", "Conv", 2, 3, ImportConv, {.classifier = true, .weight_inputs = 0b110}},
      {"", "ConvTranspose", 2, 3, ImportConvTranspose, {.weight_inputs = 0b110}},
      {"com.microsoft", "FusedConv", 2, 4, ImportFusedConv, {.weight_inputs = 0b110}},
  };
  return ops;
}

}  // namespace onnxtrain
