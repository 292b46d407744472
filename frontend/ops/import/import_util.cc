#include "frontend/ops/import/import_util.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {

ImportOr ImportSame(ImportContext& c) {
  Attrs attrs = c.attrs();
  attrs.Erase("consumed_inputs");
  return One(c.b().Op(c.node().op_type, c.node().inputs, std::move(attrs)));
}

absl::StatusOr<Val> SecondOperand(ImportContext& c) {
  const Val a = c.in(0), b = c.in(1);
  if (!c.attrs().Int("broadcast") || !c.attrs().Has("axis") || c.since(7, true, false)) return b;
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(c.attrs().Int("axis"), a.rank()));
  if (axis + b.rank() > a.rank())
    return Invalid(ToString(b.type()), " does not fit into ", ToString(a.type()), " at axis ", axis);
  Shape shape = b.shape();
  shape.resize(a.rank() - axis, 1);
  return Reshape(b, std::move(shape));
}

absl::StatusOr<int64_t> ReadAxis(ImportContext& c, int64_t otherwise, int64_t rank) {
  return NormalizeAxis(c.attrs().Int("axis", otherwise), rank);
}

absl::StatusOr<std::vector<int64_t>> NormalizeAxes(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t& axis : axes) {
    ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, rank));
  }
  if (!axes.empty()) RETURN_IF_ERROR(AxesMask(axes, static_cast<int>(rank)).status());
  return axes;
}

absl::StatusOr<int64_t> KnownInt(ImportContext& c, size_t i, std::string_view what) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, c.KnownInts(i, what));
  if (values.size() != 1) return Invalid("input ", i, " (", what, ") should be one number, got ", values.size());
  return values[0];
}

absl::StatusOr<double> KnownDouble(ImportContext& c, size_t i, std::string_view what) {
  ASSIGN_OR_RETURN(const std::vector<double> values, c.KnownDoubles(i, what));
  if (values.size() != 1) return Invalid("input ", i, " (", what, ") should be one number, got ", values.size());
  return values[0];
}

absl::StatusOr<DType> ElementType(int64_t onnx_type) {
  if (onnx_type == 8) return absl::UnimplementedError("element type 8 of ONNX, strings, is not supported");
  const auto dtype = DTypeFromOnnx(onnx_type);
  if (!dtype.has_value())
    return absl::UnimplementedError(StrCat("element type ", onnx_type, " of ONNX is not supported"));
  return *dtype;
}

namespace {

// The context of a node that replaces, or is part of, the node being imported.
class ContextOfPart : public ImportContext {
 public:
  ContextOfPart(ImportContext& whole, const NodeView& part) : whole_(whole) {
    node_ = &part;
    b_ = &whole.b();
    training = whole.for_training();
    batch_norm_frozen = whole.batch_norm_frozen;
    dropout = whole.dropout;
    conformance = whole.conformance;
    float_type = whole.float_type;
  }

  const HostTensor* Known(size_t i) override {
    if (!has(i)) return nullptr;
    const auto from = InputOfWhole(i);
    return from.has_value() ? whole_.Known(*from) : in(i).constant();
  }
  Val AsFloatWeight(size_t i, const HostTensor& value) override {
    const auto from = InputOfWhole(i);
    return from.has_value() ? whole_.AsFloatWeight(*from, value) : Val();
  }
  absl::StatusOr<Val> AsState(size_t i) override { return in(i); }
  void UpdateState(Val, Val, double) override {}
  Val RandomKey() override { return whole_.RandomKey(); }
  int64_t RandomStream() override { return whole_.RandomStream(); }

 private:
  std::optional<size_t> InputOfWhole(size_t i) const {
    for (size_t k = 0; k < whole_.num_inputs(); ++k) {
      if (whole_.has(k) && whole_.in(k).id() == in(i).id()) return k;
    }
    return std::nullopt;
  }

  ImportContext& whole_;
};

}  // namespace

ImportOr ImportAs(ImportContext& c, std::string_view domain, std::string_view op_type, std::vector<Val> inputs,
                  Attrs attrs) {
  constexpr int kNewest = 24;
  RETURN_IF_ERROR(c.b().status());
  while (!inputs.empty() && !inputs.back()) inputs.pop_back();
  const OnnxOp* op = FindOnnxOp(domain, op_type);
  const auto count = static_cast<int>(inputs.size());
  if (op == nullptr || op->import == nullptr)
    return absl::UnimplementedError(StrCat("needs ", op_type, ", which is not supported"));
  if (count < op->min_inputs || count > op->max_inputs) return Invalid("would give ", op_type, " ", count, " inputs");
  const NodeView part{.domain = domain,
                      .op_type = op_type,
                      .name = c.node().name,
                      .version = domain.empty() ? kNewest : 1,
                      .inputs = std::move(inputs),
                      .used = {true},
                      .attrs = std::move(attrs)};
  ContextOfPart context(c, part);
  return op->import(context);
}

Val GatherConstant(Val x, const std::vector<int64_t>& index, int64_t axis) {
  if (!x.valid()) return Val();
  return x.b().Op("Gather", {x, x.b().Ints(index)}, {{"axis", axis}});
}

namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

absl::Status CheckNumbers(const Shape& values, size_t count, int64_t least, std::string_view what) {
  if (values.size() != count) return Invalid(what, " ", ToString(values), " should have ", count, " entries");
  for (int64_t v : values) {
    if (v < least || v >= kLimit)
      return Invalid(what, " ", ToString(values), " should be between ", least, " and 2^31");
  }
  return absl::OkStatus();
}

// Sets pads for the output extent ⌈extent/stride⌉. An odd element of padding is at the end for SAME_UPPER, at the begin
// for SAME_LOWER.
void PadToSame(Windows* w, std::span<const int64_t> extents, bool upper) {
  const size_t n = w->axes();
  for (size_t i = 0; i < n; ++i) {
    const int64_t windows = (extents[i] + w->strides[i] - 1) / w->strides[i];
    const int64_t total = std::max<int64_t>(0, (windows - 1) * w->strides[i] + w->Reach(i) - extents[i]);
    w->pads[i] = upper ? total / 2 : total - total / 2;
    w->pads[i + n] = total - w->pads[i];
  }
}

}  // namespace

absl::Status RequireInputs(const ImportContext& c, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (!c.has(i)) return Invalid("input ", i, " is missing");
  }
  return absl::OkStatus();
}

absl::Status RequireAnySpatial(const ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.in(0).rank() >= 3) return absl::OkStatus();
  return Invalid("expected [N,C,…] with spatial axes, got ", ToString(c.in(0).type()));
}

absl::Status RequireSpatial(const ImportContext& c) {
  RETURN_IF_ERROR(RequireAnySpatial(c));
  const int rank = c.in(0).rank();
  if (rank > 2 + kMaxSpatialAxes) return Unsupported(StrCat(rank - 2, " spatial axes"));
  return absl::OkStatus();
}

absl::Status Unsupported(std::string_view what) { return absl::UnimplementedError(StrCat(what, " is not supported")); }

absl::StatusOr<Windows> ImportWindows(const Attrs& attrs, Shape kernel, std::span<const int64_t> extents) {
  const size_t n = extents.size();
  RETURN_IF_ERROR(CheckNumbers(kernel, n, 1, "kernel_shape"));
  Windows w{std::move(kernel), attrs.Ints("strides", Shape(n, 1)), attrs.Ints("pads", Shape(2 * n, 0)),
            attrs.Ints("dilations", Shape(n, 1))};
  RETURN_IF_ERROR(CheckNumbers(w.strides, n, 1, "strides"));
  RETURN_IF_ERROR(CheckNumbers(w.dilations, n, 1, "dilations"));
  const std::string auto_pad = attrs.String("auto_pad", "NOTSET");
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    w.pads.assign(2 * n, 0);
    PadToSame(&w, extents, auto_pad == "SAME_UPPER");
  } else if (auto_pad == "VALID") {
    w.pads.assign(2 * n, 0);
  } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
    return Invalid("auto_pad '", auto_pad, "' is none of NOTSET, SAME_UPPER, SAME_LOWER, VALID");
  }
  RETURN_IF_ERROR(CheckNumbers(w.pads, 2 * n, -kLimit, "pads"));
  return w;
}

absl::StatusOr<Val> CropNegativePads(Val x, Windows* w) {
  const size_t n = w->axes();
  for (size_t i = 0; i < n; ++i) {
    const int axis = static_cast<int>(i) + 2;
    const int64_t begin = std::max<int64_t>(0, -w->pads[i]), end = std::max<int64_t>(0, -w->pads[i + n]);
    if (begin == 0 && end == 0) continue;
    const int64_t left = x.dim(axis) - begin - end;
    if (left < 1) return Invalid("pads ", ToString(w->pads), " leave nothing of ", ToString(x.type()));
    x = Slice(x, axis, begin, left);
    w->pads[i] = std::max<int64_t>(0, w->pads[i]);
    w->pads[i + n] = std::max<int64_t>(0, w->pads[i + n]);
  }
  return x;
}

Shape CeilModePads(const Windows& w, std::span<const int64_t> extents) {
  const size_t n = w.axes();
  Shape overhang(n, 0);
  for (size_t i = 0; i < n; ++i) {
    const int64_t begun = extents[i] + w.pads[i], room = begun + w.pads[i + n] - w.Reach(i);
    if (room < 0) continue;
    const int64_t last = (room + w.strides[i] - 1) / w.strides[i] * w.strides[i];  // start of the last window
    if (last < begun) overhang[i] = last - room;
  }
  return overhang;
}

Val PadSpatial(Val x, const Shape& pads, double value) {
  if (!x || std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; })) return x;
  const auto n = static_cast<std::ptrdiff_t>(pads.size() / 2);
  Shape all(2, 0);
  all.insert(all.end(), pads.begin(), pads.begin() + n);
  all.insert(all.end(), 2, 0);
  all.insert(all.end(), pads.begin() + n, pads.end());
  return x.b().Op("Pad", {x}, {{"pads", std::move(all)}, {"value", value}});
}

Val UnsqueezeToChannels(Val v, int rank) {
  if (!v) return v;
  Shape shape(rank, 1);
  if (rank > 1) shape[1] = v.type().elements();
  return Reshape(v, std::move(shape));
}

std::vector<int64_t> SpatialAxes(Val x) {
  std::vector<int64_t> axes(std::max(0, x.rank() - 2));
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

absl::StatusOr<Val> Iota(Builder& b, int64_t n) {
  RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {n}}));
  std::vector<int64_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return b.Ints(values);
}

Val Ones(Val like, Shape shape) { return Expand(like.b().Scalar(like.dtype(), 1), std::move(shape)); }

namespace {

int64_t Product(const Shape& shape, size_t begin, size_t end) {
  return NumElements(
      Shape(shape.begin() + static_cast<std::ptrdiff_t>(begin), shape.begin() + static_cast<std::ptrdiff_t>(end)));
}

bool IsSingle(const Windows& w, size_t i) {
  return w.kernel[i] == 1 && w.strides[i] == 1 && w.pads[i] == 0 && w.pads[i + w.axes()] == 0;
}

// Returns the axes whose windows have several elements, or the last axis if there are none.
std::vector<size_t> WindowedAxes(const Windows& w) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < w.axes(); ++i) {
    if (!IsSingle(w, i)) axes.push_back(i);
  }
  if (axes.empty()) axes.push_back(w.axes() - 1);
  return axes;
}

Windows Select(const Windows& w, const std::vector<size_t>& axes) {
  Windows selected;
  for (const size_t i : axes) {
    selected.kernel.push_back(w.kernel[i]);
    selected.strides.push_back(w.strides[i]);
    selected.dilations.push_back(w.dilations[i]);
    selected.pads.push_back(w.pads[i]);
  }
  for (const size_t i : axes) selected.pads.push_back(w.pads[i + w.axes()]);
  return selected;
}

}  // namespace

Val WindowAxes::Restore(Val y) const {
  if (!y || !folded()) return y;
  const size_t windows = w.axes(), first = joined.size() - windows;
  Shape shape = joined;
  shape[channel] = y.dim(1) / Product(joined, channel + 1, first);
  for (size_t i = 0; i < windows; ++i) shape[first + i] = y.dim(static_cast<int>(i) + 2);
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return Transpose(Reshape(y, std::move(shape)), std::move(back));
}

absl::StatusOr<WindowAxes> FoldWindowAxes(Val x, Windows w, bool channels_alone) {
  WindowAxes result{x, std::move(w), {}, {}};
  if (result.w.axes() <= kMaxSpatialAxes) return result;
  const std::vector<size_t> windowed = WindowedAxes(result.w);
  if (windowed.size() > kMaxSpatialAxes) return Unsupported(StrCat("windows over ", windowed.size(), " spatial axes"));
  std::vector<int64_t> samples = {0}, channels = {1}, spatial;
  for (size_t i = 0; i < result.w.axes(); ++i) {
    const bool single = std::ranges::find(windowed, i) == windowed.end();
    auto& axes = !single ? spatial : channels_alone && i > windowed[0] ? channels : samples;
    axes.push_back(static_cast<int64_t>(i) + 2);
  }
  result.channel = static_cast<int>(samples.size());
  for (const auto& axes : {samples, channels, spatial}) {
    result.order.insert(result.order.end(), axes.begin(), axes.end());
  }
  for (const int64_t axis : result.order) result.joined.push_back(x.dim(static_cast<int>(axis)));
  const size_t split = samples.size(), first = split + channels.size();
  Shape shape = {Product(result.joined, 0, split), Product(result.joined, split, first)};
  shape.insert(shape.end(), result.joined.begin() + static_cast<std::ptrdiff_t>(first), result.joined.end());
  result.x = Reshape(Transpose(x, result.order), std::move(shape));
  result.w = Select(result.w, windowed);
  return result;
}

Val FoldKernel(Val weights, const WindowAxes& axes) {
  if (!axes.folded()) return weights;
  Shape shape = {weights.dim(0), weights.dim(1)};
  shape.insert(shape.end(), axes.w.kernel.begin(), axes.w.kernel.end());
  return Reshape(weights, std::move(shape));
}

}  // namespace onnxtrain
