#include "frontend/ops/rules.h"

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status TypeMismatch(const TypeContext& c, size_t i, std::string_view expected) {
  return Invalid("input ", i, " should be ", expected, ", got ", ToString(c.in(i)));
}

}  // namespace

absl::Status RequireFloat(const TypeContext& c, size_t i) {
  return IsFloat(c.in(i).dtype) ? absl::OkStatus() : TypeMismatch(c, i, "of a float type");
}

absl::Status RequireNumeric(const TypeContext& c, size_t i) {
  const DType dtype = c.in(i).dtype;
  return IsFloat(dtype) || IsInteger(dtype) ? absl::OkStatus() : TypeMismatch(c, i, "of a numeric type");
}

absl::Status RequireDType(const TypeContext& c, size_t i, DType dtype) {
  return c.in(i).dtype == dtype ? absl::OkStatus() : TypeMismatch(c, i, ToString(dtype));
}

absl::Status RequireSameDType(const TypeContext& c, size_t i, size_t j) {
  if (c.in(i).dtype == c.in(j).dtype) return absl::OkStatus();
  return Invalid("inputs ", i, " and ", j, " should have one element type, got ", ToString(c.in(i)), " and ",
                 ToString(c.in(j)));
}

absl::Status RequireMinRank(const TypeContext& c, size_t i, int rank) {
  return c.in(i).rank() >= rank ? absl::OkStatus() : TypeMismatch(c, i, StrCat("of rank ", rank, " or more"));
}

absl::Status RequireShape(const TypeContext& c, size_t i, const Shape& shape) {
  return c.in(i).shape == shape ? absl::OkStatus() : TypeMismatch(c, i, StrCat("of shape ", ToString(shape)));
}

absl::StatusOr<Shape> BroadcastOrError(const Shape& a, const Shape& b) {
  auto shape = BroadcastShapes(a, b);
  if (!shape.has_value()) return Invalid("shapes ", ToString(a), " and ", ToString(b), " do not broadcast");
  return *std::move(shape);
}

TypesOr SameAsInput(const TypeContext& c) { return std::vector<Type>{c.in(0)}; }

TypesOr SameAsFloatInput(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  return SameAsInput(c);
}

TypesOr SameAsNumericInput(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  return SameAsInput(c);
}

TypesOr SameFloatInputs(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    if (!(c.in(i) == c.in(0))) return TypeMismatch(c, i, ToString(c.in(0)));
  }
  return SameAsInput(c);
}

TypesOr PredicateOfFloat(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  return std::vector<Type>{{DType::kBool, c.in(0).shape}};
}

TypesOr BroadcastNumeric(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  RETURN_IF_ERROR(RequireSameDType(c, 0, 1));
  ASSIGN_OR_RETURN(Shape shape, BroadcastOrError(c.in(0).shape, c.in(1).shape));
  return std::vector<Type>{{c.in(0).dtype, std::move(shape)}};
}

TypesOr BroadcastCompare(const TypeContext& c) {
  RETURN_IF_ERROR(RequireSameDType(c, 0, 1));
  ASSIGN_OR_RETURN(Shape shape, BroadcastOrError(c.in(0).shape, c.in(1).shape));
  return std::vector<Type>{{DType::kBool, std::move(shape)}};
}

TypesOr BroadcastBool(const TypeContext& c) {
  RETURN_IF_ERROR(RequireDType(c, 0, DType::kBool));
  RETURN_IF_ERROR(RequireDType(c, 1, DType::kBool));
  return BroadcastCompare(c);
}

absl::StatusOr<int64_t> AxisAttr(const TypeContext& c, int rank) {
  const int64_t axis = c.attrs.Int("axis");
  if (axis < 0 || axis >= rank) return Invalid("axis ", axis, " is outside a tensor of rank ", rank);
  return axis;
}

absl::StatusOr<std::vector<bool>> AxesMask(const std::vector<int64_t>& axes, int rank) {
  std::vector<bool> mask(rank, axes.empty());
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= rank) return Invalid("axis ", axis, " is outside a tensor of rank ", rank);
    if (mask[axis]) return Invalid("axis ", axis, " is given twice");
    mask[axis] = true;
  }
  return mask;
}

Shape ReducedShape(const Shape& shape, const std::vector<bool>& mask, bool keepdims) {
  Shape out;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!mask[i]) {
      out.push_back(shape[i]);
    } else if (keepdims) {
      out.push_back(1);
    }
  }
  return out;
}

absl::StatusOr<Shape> ShapeAttr(const TypeContext& c, std::string_view name) {
  Shape shape = c.attrs.Ints(name);
  RETURN_IF_ERROR(Annotate(CheckShape(shape), StrCat("attribute '", name, "': ")));
  return shape;
}

absl::StatusOr<std::vector<int64_t>> IntsPerAxis(const TypeContext& c, std::string_view name, int rank) {
  std::vector<int64_t> ints = c.attrs.Ints(name);
  if (ints.size() == static_cast<size_t>(rank)) return ints;
  return Invalid("attribute '", name, "' should have ", rank, " numbers, one per axis, got ", ints.size());
}

absl::Status CheckHostConstant(const Type& type) {
  RETURN_IF_ERROR(CheckShape(type.shape));
  // The number of bytes cannot overflow, since CheckShape limits the elements to 2^40.
  if (static_cast<int64_t>(type.bytes()) <= kMaxHostConstantBytes) return absl::OkStatus();
  return Invalid("a constant of type ", ToString(type), " is above the limit of ", kMaxHostConstantBytes >> 20, " MiB");
}

}  // namespace onnxtrain
