// Losses per sample. Reductions over samples are separate operators.
#include <numeric>

#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// Removes the class axis: [N,C,…] → [N,…].
Shape WithoutClasses(Shape logits) {
  logits.erase(logits.begin() + 1);
  return logits;
}

// Inserts a class axis: [N,…] → [N,1,…].
Val WithClassAxis(Val v) {
  Shape shape = v.shape();
  shape.insert(shape.begin() + 1, 1);
  return Reshape(v, std::move(shape));
}

absl::Status CheckLogits(const TypeContext& c, const Type& logits, size_t labels) {
  if (logits.rank() < 2 || logits.shape[1] < 1) return Invalid("expected classes [N,C,…], got ", ToString(logits));
  const double smoothing = c.attrs.Float("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) return Invalid("label_smoothing ", smoothing, " is outside [0, 1]");
  return CheckInputType(c, labels, {DType::kInt64, WithoutClasses(logits.shape)});
}

absl::StatusOr<std::vector<Type>> InferCrossEntropy(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  const Type& logits = c.in(0);
  RETURN_IF_ERROR(CheckLogits(c, logits, 1));
  return std::vector<Type>{{logits.dtype, WithoutClasses(logits.shape)}, logits};
}

absl::StatusOr<std::vector<Type>> InferCrossEntropyGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  RETURN_IF_ERROR(CheckLogits(c, c.in(1), 2));
  RETURN_IF_ERROR(CheckInputShape(c, 0, WithoutClasses(c.in(1).shape)));
  return std::vector<Type>{c.in(1)};
}

absl::StatusOr<std::vector<Type>> InferBinaryCrossEntropy(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  RETURN_IF_ERROR(CheckInputType(c, 1, c.in(0)));
  return std::vector<Type>{c.in(0)};
}

Val LabelScalar(Val labels, int64_t value) {
  return labels ? labels.b().Constant(HostTensor::FromInts({DType::kInt64, {}}, {&value, 1})) : Val();
}

Val IsIgnored(Val labels, const Attrs& attrs) { return Equal(labels, LabelScalar(labels, attrs.Int("ignore_index"))); }

Val ZeroWhere(Val condition, Val x) { return Where(condition, x ? x.b().Scalar(x.dtype(), 0) : x, x); }

// Computes −(1−ε)·log p[label] − ε·mean(log p), and 0 for ignored labels (label smoothing: Szegedy et al., 2016).
std::vector<Val> DecomposeCrossEntropy(const DecomposeContext& c) {
  const Val labels = c.x(1);
  const double smoothing = c.attrs.Float("label_smoothing");
  const Val log_prob = c.b.Op("LogSoftmax", {c.x(0)}, {{"axis", int64_t{1}}});
  const Val ignored = IsIgnored(labels, c.attrs);
  const Val safe = Where(ignored, LabelScalar(labels, 0), labels);
  const Val picked = c.b.Op("GatherElements", {log_prob, WithClassAxis(safe)}, {{"axis", int64_t{1}}});
  Val loss = Reshape(picked, labels.shape()) * (smoothing - 1);
  if (smoothing > 0) loss = loss - ReduceMean(log_prob, {1}, false) * smoothing;
  return {ZeroWhere(ignored, loss), log_prob};
}

// Computes dlogits = (p − (1−ε)·onehot(label) − ε/C)·dloss.
std::vector<Val> DecomposeCrossEntropyGrad(const DecomposeContext& c) {
  const Val log_prob = c.x(1), labels = c.x(2);
  const double smoothing = c.attrs.Float("label_smoothing");
  const int64_t classes = log_prob.dim(1);
  std::vector<int64_t> index(classes);
  std::iota(index.begin(), index.end(), 0);
  Shape along(log_prob.rank(), 1);
  along[1] = classes;
  const Val is_label = Cast(Equal(WithClassAxis(labels), Reshape(c.b.Ints(index), along)), log_prob.dtype());
  Val excess = Exp(log_prob) - is_label * (1 - smoothing);
  if (smoothing > 0) excess = excess - smoothing / static_cast<double>(classes);
  return {excess * WithClassAxis(ZeroWhere(IsIgnored(labels, c.attrs), c.x(0)))};
}

std::vector<Val> CrossEntropyGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  Val dlogits;
  if (c.dy(0)) dlogits = c.b.Op("CrossEntropyGrad", {c.dy(0), c.y(1), c.x(1)}, attrs);
  if (c.dy(1)) {
    const Val through = c.b.Op("LogSoftmaxGrad", {c.dy(1), c.y(1)}, {{"axis", int64_t{1}}});
    dlogits = dlogits ? dlogits + through : through;
  }
  return {dlogits, Val()};
}

std::vector<Val> DecomposeBinaryCrossEntropy(const DecomposeContext& c) {
  const Val x = c.x(0);
  const Val tail = c.b.Op("Log1p", {Exp(-c.b.Op("Abs", {x}))});
  return {c.b.Op("Relu", {x}) - x * c.x(1) + tail};
}

std::vector<Val> BinaryCrossEntropyGradient(const GradContext& c) {
  return {c.dy() * (Sigmoid(c.x(0)) - c.x(1)), -(c.dy() * c.x(0))};
}

}  // namespace

std::span<const OpRow> LossOps() {
  const AttrSpec ignore_index = {"ignore_index", int64_t{-100}};
  const AttrSpec label_smoothing = {"label_smoothing", 0.0};
  static const std::vector<OpRow> rows = {
      {.name = "CrossEntropy",
       .inputs = {2, 2},
       .outputs = 2,
       .attrs = {ignore_index, label_smoothing},
       .infer = InferCrossEntropy,
       .grad_status = GradStatus::kFormula,
       .gradient = CrossEntropyGradient,
       .decompose = DecomposeCrossEntropy,
       .precision = Precision::kFloat32},
      {.name = "CrossEntropyGrad",
       .inputs = {3, 3},
       .attrs = {ignore_index, label_smoothing},
       .infer = InferCrossEntropyGrad,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeCrossEntropyGrad,
       .precision = Precision::kFloat32,
       .is_gradient = true},
      {.name = "BinaryCrossEntropyWithLogits",
       .inputs = {2, 2},
       .infer = InferBinaryCrossEntropy,
       .grad_status = GradStatus::kFormula,
       .gradient = BinaryCrossEntropyGradient,
       .decompose = DecomposeBinaryCrossEntropy,
       .precision = Precision::kFloat32,
       .elementwise = true},
  };
  return rows;
}

}  // namespace onnxtrain
