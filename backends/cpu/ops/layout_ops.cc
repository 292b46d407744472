// cpu.View and cpu.PackWeight: other layouts of the same elements.
#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

TypesOr ViewTypes(const TypeContext& c) {
  Type type = {c.in(0).dtype, c.attrs.Ints("shape")};
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (c.attrs.Int("channels_last") != 0) type.layout = Layout::kChannelsLast;
  const bool fits = type.rank() > 2 || type.layout == Layout::kRowMajor;
  if (!fits || type.bytes() != c.in(0).bytes())
    return Invalid("no view of ", ToString(c.in(0)), " as ", ToString(type));
  return Types{type};
}

TypesOr PackTypes(const TypeContext& c) {
  const int64_t group = c.attrs.Int("group");
  const bool flipped = c.attrs.Int("flipped") != 0;
  const std::string to = c.attrs.String("to");
  Type w = c.in(0);
  const auto packed = to.empty() ? w.dtype : ParseDType(to);
  if (!IsMultiplied(w.dtype) || !packed || !IsMultiplied(*packed) || w.rank() < 2)
    return Invalid("cannot pack ", ToString(w), to.empty() ? "" : " to ", to);
  if (group < 1 || w.shape[0] % group != 0 || (flipped && group != 1))
    return Invalid("no ", group, " groups in ", ToString(w));
  if (flipped) w = FlippedWeights(w);
  w.dtype = *packed;
  w.layout = Layout::kPacked;
  RETURN_IF_ERROR(CatchDnnlErrors([&] {
    if (const auto layout = PackedWeightLayout(w, group, c.attrs.Ints("layout"))) w.packed_bytes = layout->get_size();
  }));
  if (w.packed_bytes == 0) return Invalid("no such layout of ", ToString(c.in(0)));
  return Types{w};
}

}  // namespace

std::vector<OpRow> LayoutRows() {
  const AttrSpec shape = {"shape", std::vector<int64_t>(), true}, layout = {"layout", std::vector<int64_t>(), true};
  return {{.name = "cpu.View",
           .attrs = {shape, {"channels_last", int64_t{0}}},
           .infer = ViewTypes,
           .recompute = Recompute::kFree,
           .layout = {.inputs = 1, .any_order = true},
           .view = true},
          {.name = "cpu.PackWeight",
           .attrs = {{"group", int64_t{1}}, layout, {"flipped", int64_t{0}}, {"to", std::string()}},
           .infer = PackTypes,
           .recompute = Recompute::kExpensive,
           .derive = true}};
}

bool IsMultiplied(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

Val Reinterpret(Val x, const Type& type) {
  if (x.type() == type) return x;
  if (x.type().layout == Layout::kRowMajor && type.layout == Layout::kRowMajor) return Reshape(x, type.shape);
  return x.b().Op("cpu.View", {x},
                  {{"shape", type.shape}, {"channels_last", int64_t{type.layout == Layout::kChannelsLast}}});
}

Val ToNhwc(Val x) {
  const Type to = {x.dtype(), x.shape(), Layout::kChannelsLast};
  return Reinterpret(IsTrivialChannelsLast(x.shape()) ? x : Transpose(x, NchwToNhwcPerm(x.rank())), to);
}

Val ToNchw(Val x) {
  const Type to = {x.dtype(), x.shape()};
  if (IsTrivialChannelsLast(x.shape())) return Reinterpret(x, to);
  return Transpose(Reinterpret(x, {x.dtype(), PhysicalShape(x.type())}), NhwcToNchwPerm(x.rank()));
}

}  // namespace onnxtrain::cpu
