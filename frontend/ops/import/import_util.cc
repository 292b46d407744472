#include "frontend/ops/import/import_util.h"

#include <algorithm>

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

// Another node in the place of one that is being imported.
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

}  // namespace onnxtrain
