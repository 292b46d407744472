#include "frontend/ops/builder.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr double kMaxFoldFlops = 1e6;

}  // namespace

const Type& Val::type() const {
  static const Type kDummy;
  return valid() ? b_->graph().type(id_) : kDummy;
}

int64_t Val::dim(int axis) const {
  const Shape& s = shape();
  if (axis < 0) axis += rank();
  return axis >= 0 && axis < rank() ? s[axis] : 1;
}

const HostTensor* Val::constant() const { return valid() ? b_->graph().FindConstant(id_) : nullptr; }

Val Builder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return Val();
}

absl::Status Builder::TakeStatus() {
  absl::Status status = std::move(status_);
  status_ = absl::OkStatus();
  return status;
}

Val Builder::Input(InputKind kind, std::string name, Type type) {
  return Val(this, graph_->AddInput(kind, std::move(name), std::move(type)));
}

Val Builder::Op(std::string_view op, std::vector<Val> inputs, Attrs attrs) {
  return Ops(op, std::move(inputs), std::move(attrs)).front();
}

std::vector<Val> Builder::Ops(std::string_view op, std::vector<Val> inputs, Attrs attrs) {
  const OpRow* row = FindOp(op);
  CHECK(row != nullptr) << "no operator named " << op;
  const std::vector<Val> failed(
      std::max(row->outputs == kOutputsFromAttr ? attrs.Int("num_outputs", 1) : row->outputs, int64_t{1}));
  if (!status_.ok()) return failed;
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  // Points into the values of the graph, so nothing may be appended while these pointers are used.
  std::vector<const Type*> types;
  ValueIds ids;
  for (Val v : inputs) {
    types.push_back(v.valid() ? &v.type() : nullptr);
    ids.push_back(v.valid() ? v.id() : kNoValue);
  }
  auto outputs = InferTypes(op, types, attrs);
  if (!outputs.ok()) {
    Fail(Annotate(outputs.status(), NodeTag(op, *source_)));
    return failed;
  }
  std::vector<Val> results;
  if (Fold(op, inputs, attrs, *outputs, &results)) return results;
  const Node& node = graph_->AddNode(std::string(op), std::move(ids), std::move(attrs), *std::move(outputs), source_);
  for (ValueId id : node.outputs) results.emplace_back(this, id);
  return results;
}

bool Builder::Fold(std::string_view op, const std::vector<Val>& inputs, const Attrs& attrs,
                   const std::vector<Type>& types, std::vector<Val>* results) {
  const OpRow* row = FindOp(op);
  if (fold_limit_ == 0 || row->evaluate == nullptr || inputs.empty()) return false;
  for (const Type& type : types) {
    if (type.bytes() > fold_limit_) return false;
  }
  std::vector<const HostTensor*> known;
  std::vector<const Type*> input_types;
  for (Val v : inputs) {
    known.push_back(v.constant());
    if (v.valid() && known.back() == nullptr) return false;
    input_types.push_back(v.valid() ? &v.type() : nullptr);
  }
  // A product of constants can have a small result and still take minutes; leaves it to the budget of FoldConstants.
  if (row->flops != nullptr && row->flops(input_types, types, attrs) > kMaxFoldFlops) return false;
  for (HostTensor& tensor : row->evaluate({attrs, known, types})) results->push_back(Constant(std::move(tensor)));
  return true;
}

Val Builder::Constant(HostTensor tensor) {
  if (!status_.ok()) return Val();
  Type type = tensor.type();
  Attrs attrs;
  attrs.Set("value", std::move(tensor));
  const Node& node = graph_->AddNode("Constant", {}, std::move(attrs), {std::move(type)}, source_);
  return Val(this, node.outputs[0]);
}

namespace {

Val Unary(std::string_view op, Val x) { return x.valid() ? x.b().Op(op, {x}) : Val(); }

Val Binary(std::string_view op, Val a, Val b) {
  if (!a.valid() || !b.valid()) return Val();
  return a.b().Op(op, {a, b});
}

Val Like(Val x, double value) { return x.valid() ? x.b().Scalar(x.dtype(), value) : Val(); }

Val Reduce(std::string_view op, Val x, std::vector<int64_t> axes, bool keepdims) {
  if (!x.valid()) return Val();
  for (int64_t& axis : axes) axis += axis < 0 ? x.rank() : 0;
  return x.b().Op(op, {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keepdims}}});
}

Val AlongAxis(std::string_view op, Val x, int64_t axis) {
  return x.valid() ? x.b().Op(op, {x}, {{"axis", axis}}) : Val();
}

Val Select(std::string_view op, Val x, Val index, int64_t axis) {
  return x.valid() && index.valid() ? x.b().Op(op, {x, index}, {{"axis", axis}}) : Val();
}

}  // namespace

Val operator+(Val a, Val b) { return Binary("Add", a, b); }
Val operator-(Val a, Val b) { return Binary("Sub", a, b); }
Val operator*(Val a, Val b) { return Binary("Mul", a, b); }
Val operator/(Val a, Val b) { return Binary("Div", a, b); }
Val operator+(Val a, double b) { return a + Like(a, b); }
Val operator-(Val a, double b) { return a - Like(a, b); }
Val operator*(Val a, double b) { return a * Like(a, b); }
Val operator/(Val a, double b) { return a / Like(a, b); }
Val operator-(double a, Val b) { return Like(b, a) - b; }
Val operator/(double a, Val b) { return Like(b, a) / b; }
Val operator-(Val a) { return Unary("Neg", a); }

Val Exp(Val x) { return Unary("Exp", x); }
Val Log(Val x) { return Unary("Log", x); }
Val Sqrt(Val x) { return Unary("Sqrt", x); }
Val Rsqrt(Val x) { return Unary("Rsqrt", x); }
Val Tanh(Val x) { return Unary("Tanh", x); }
Val Sigmoid(Val x) { return Unary("Sigmoid", x); }
Val Abs(Val x) { return Unary("Abs", x); }
Val Max(Val a, Val b) { return Binary("Max", a, b); }
Val Max(Val a, double b) { return Max(a, Like(a, b)); }
Val Min(Val a, Val b) { return Binary("Min", a, b); }
Val Min(Val a, double b) { return Min(a, Like(a, b)); }
Val Pow(Val a, Val b) { return Binary("Pow", a, b); }
Val Pow(Val a, double b) { return Pow(a, Like(a, b)); }
Val Equal(Val a, Val b) { return Binary("Equal", a, b); }
Val Greater(Val a, Val b) { return Binary("Greater", a, b); }
Val Less(Val a, Val b) { return Binary("Less", a, b); }
Val And(Val a, Val b) { return Binary("And", a, b); }
Val Or(Val a, Val b) { return Binary("Or", a, b); }
Val Not(Val x) { return Unary("Not", x); }

Val Where(Val condition, Val a, Val b) {
  if (!condition.valid() || !a.valid() || !b.valid()) return Val();
  return condition.b().Op("Where", {condition, a, b});
}

Val Cast(Val x, DType to) {
  if (!x.valid() || x.dtype() == to) return x;
  return x.b().Op("Cast", {x}, {{"to", std::string(ToString(to))}});
}

Val ReduceSum(Val x, std::vector<int64_t> axes, bool keepdims) {
  return Reduce("ReduceSum", x, std::move(axes), keepdims);
}
Val ReduceMean(Val x, std::vector<int64_t> axes, bool keepdims) {
  return Reduce("ReduceMean", x, std::move(axes), keepdims);
}
Val ReduceMax(Val x, std::vector<int64_t> axes, bool keepdims) {
  return Reduce("ReduceMax", x, std::move(axes), keepdims);
}
Val ArgMax(Val x, int64_t axis) {
  return x.valid() ? x.b().Op("ArgMax", {x}, {{"axis", axis}, {"keepdims", int64_t{0}}}) : Val();
}
Val Softmax(Val x, int64_t axis) { return AlongAxis("Softmax", x, axis); }
Val LogSoftmax(Val x, int64_t axis) { return AlongAxis("LogSoftmax", x, axis); }

Val SumTo(Val x, Shape shape) {
  if (!x.valid() || x.shape() == shape) return x;
  const int lead = x.rank() - static_cast<int>(shape.size());
  std::vector<int64_t> axes;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < lead || (shape[i - lead] == 1 && x.dim(i) != 1)) axes.push_back(i);
  }
  return Reshape(axes.empty() ? x : ReduceSum(x, std::move(axes)), shape);
}

Val MatMul(Val a, Val b, bool trans_a, bool trans_b) {
  if (!a.valid() || !b.valid()) return Val();
  return a.b().Op("MatMul", {a, b}, {{"trans_a", int64_t{trans_a}}, {"trans_b", int64_t{trans_b}}});
}

Val Reshape(Val x, Shape shape) {
  if (!x.valid() || x.shape() == shape) return x;
  return x.b().Op("Reshape", {x}, {{"shape", std::move(shape)}});
}

Val Transpose(Val x, std::vector<int64_t> perm) {
  std::vector<int64_t> identity(perm.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (!x.valid() || (perm == identity && x.rank() == static_cast<int>(perm.size()))) return x;
  return x.b().Op("Transpose", {x}, {{"perm", std::move(perm)}});
}

Val Expand(Val x, Shape shape) {
  if (!x.valid() || x.shape() == shape) return x;
  return x.b().Op("Expand", {x}, {{"shape", std::move(shape)}});
}

Val Concat(std::vector<Val> parts, int64_t axis) {
  for (Val part : parts) {
    if (!part.valid()) return Val();
  }
  if (parts.size() == 1) return parts[0];
  if (axis < 0) axis += parts[0].rank();
  Builder& b = parts[0].b();
  return b.Op("Concat", std::move(parts), {{"axis", axis}});
}

Val Slice(Val x, int64_t axis, int64_t start, int64_t length) {
  if (!x.valid()) return Val();
  if (axis < 0) axis += x.rank();
  std::vector<int64_t> starts(x.rank(), 0), steps(x.rank(), 1);
  Shape sizes = x.shape();
  if (axis < 0 || axis >= x.rank()) return x.b().Fail(Invalid("slice along axis ", axis, " of ", ToString(x.type())));
  starts[axis] = start;
  sizes[axis] = length;
  return x.b().Op("Slice", {x},
                  {{"starts", std::move(starts)}, {"sizes", std::move(sizes)}, {"steps", std::move(steps)}});
}

Val Gather(Val x, Val index, int64_t axis) { return Select("Gather", x, index, axis); }
Val GatherElements(Val x, Val index, int64_t axis) { return Select("GatherElements", x, index, axis); }

Val ZerosLike(Val x) {
  if (!x.valid()) return Val();
  return Expand(Like(x, 0), x.shape());
}

absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) return Invalid("axis ", axis, " is outside a tensor of rank ", rank);
  return axis < 0 ? axis + rank : axis;
}

}  // namespace onnxtrain
