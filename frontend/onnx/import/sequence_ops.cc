#include "frontend/onnx/import/control_flow.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxElements = 10'000;  // of a sequence; every change copies the list

// One node, with its operands.
struct ListCall {
  Builder& b;
  const Attrs& attrs;
  const ImportValues& inputs;
  KnownValues& values;

  bool has(size_t i) const { return i < inputs.size() && inputs[i].valid(); }
};

ListValue MakeSequence(std::vector<Val> elements) {
  return {.form = {.sequence = true}, .elements = std::move(elements)};
}

ImportValuesOr SingleResult(ImportValue value) { return ImportValues{std::move(value)}; }

absl::StatusOr<Val> TensorAt(const ListCall& c, size_t i) {
  if (i >= c.inputs.size() || !c.inputs[i].tensor.valid()) return Invalid("input ", i, " should be a tensor");
  return c.inputs[i].tensor;
}

// Returns input i as a sequence; a present optional sequence counts as one.
absl::StatusOr<const ListValue*> SequenceAt(const ListCall& c, size_t i) {
  const ListValue* list = c.has(i) ? c.inputs[i].list.get() : nullptr;
  if (list == nullptr || !list->form.sequence || !list->present) return Invalid("input ", i, " should be a sequence");
  return list;
}

absl::StatusOr<const HostTensor*> KnownTensor(const ListCall& c, size_t i, std::string_view what) {
  ASSIGN_OR_RETURN(const Val v, TensorAt(c, i));
  const HostTensor* known = c.values.Find(v);
  if (known == nullptr)
    return absl::UnimplementedError(StrCat(what, " is known only at run time, which is not supported"));
  return known;
}

// Returns input i as a position in a sequence of `count` elements; negative positions count from the end.
absl::StatusOr<int64_t> FindPosition(const ListCall& c, size_t i, int64_t count) {
  ASSIGN_OR_RETURN(const HostTensor* known, KnownTensor(c, i, "its position"));
  if (known->size() != 1) return Invalid("its position has ", known->size(), " elements");
  const int64_t position = known->IntAt(0);
  if (position < -count || position >= count)
    return Invalid("position ", position, " is outside the sequence of ", count);
  return position < 0 ? position + count : position;
}

ImportValuesOr ConstructSequence(const ListCall& c) {
  std::vector<Val> elements;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    ASSIGN_OR_RETURN(elements.emplace_back(), TensorAt(c, i));
  }
  return SingleResult(MakeSequence(std::move(elements)));
}

ImportValuesOr EmptySequence(const ListCall&) { return SingleResult(MakeSequence({})); }

ImportValuesOr InsertElement(const ListCall& c) {
  ASSIGN_OR_RETURN(const ListValue* list, SequenceAt(c, 0));
  ASSIGN_OR_RETURN(const Val tensor, TensorAt(c, 1));
  const auto count = static_cast<int64_t>(list->elements.size());
  if (count >= kMaxElements)
    return absl::UnimplementedError(StrCat("builds a sequence of more than ", kMaxElements, " elements"));
  int64_t at = count;
  // Position `count` inserts after the last element, −1 before it.
  if (c.has(2)) {
    ASSIGN_OR_RETURN(const HostTensor* known, KnownTensor(c, 2, "its position"));
    if (known->size() != 1) return Invalid("its position has ", known->size(), " elements");
    at = known->IntAt(0);
    if (at < -count || at > count) return Invalid("position ", at, " is outside the sequence of ", count);
    if (at < 0) at += count;
  }
  std::vector<Val> elements = list->elements;
  elements.insert(elements.begin() + at, tensor);
  return SingleResult(MakeSequence(std::move(elements)));
}

ImportValuesOr SelectElement(const ListCall& c) {
  ASSIGN_OR_RETURN(const ListValue* list, SequenceAt(c, 0));
  ASSIGN_OR_RETURN(const int64_t at, FindPosition(c, 1, static_cast<int64_t>(list->elements.size())));
  return SingleResult(list->elements[at]);
}

ImportValuesOr EraseElement(const ListCall& c) {
  ASSIGN_OR_RETURN(const ListValue* list, SequenceAt(c, 0));
  const auto count = static_cast<int64_t>(list->elements.size());
  if (count == 0) return Invalid("erases from an empty sequence");
  int64_t at = count - 1;
  if (c.has(1)) {
    ASSIGN_OR_RETURN(at, FindPosition(c, 1, count));
  }
  std::vector<Val> elements = list->elements;
  elements.erase(elements.begin() + at);
  return SingleResult(MakeSequence(std::move(elements)));
}

ImportValuesOr CountElements(const ListCall& c) {
  ASSIGN_OR_RETURN(const ListValue* list, SequenceAt(c, 0));
  const auto count = static_cast<int64_t>(list->elements.size());
  return SingleResult(c.b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&count, 1})));
}

// Returns the extents of the pieces: all 1 by default, equal ones (the last may be smaller), or as listed.
absl::StatusOr<std::vector<int64_t>> ChoosePieceSizes(const ListCall& c, int64_t extent) {
  if (!c.has(1)) return std::vector<int64_t>(std::min(extent, kMaxElements + 1), 1);
  ASSIGN_OR_RETURN(const HostTensor* split, KnownTensor(c, 1, "its split"));
  if (split->type().rank() > 0) return split->ToInts();
  const int64_t size = split->size() == 1 ? split->IntAt(0) : 0;
  if (size < 1) return Invalid("splits into pieces of ", size);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < extent && at / size <= kMaxElements; at += size)
    sizes.push_back(std::min(size, extent - at));
  return sizes;
}

ImportValuesOr SplitTensor(const ListCall& c) {
  ASSIGN_OR_RETURN(const Val x, TensorAt(c, 0));
  ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(c.attrs.Int("axis", 0), x.rank()));
  const int64_t extent = x.dim(static_cast<int>(axis));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ChoosePieceSizes(c, extent));
  if (static_cast<int64_t>(sizes.size()) > kMaxElements) {
    return absl::UnimplementedError(StrCat("builds a sequence of more than ", kMaxElements, " elements"));
  }
  std::vector<Val> pieces;
  int64_t at = 0;
  for (int64_t size : sizes) {
    if (size < 0 || size > extent - at) return Invalid("splits an extent of ", extent, " into more");
    Val piece = onnxtrain::Slice(x, axis, at, size);
    if (!c.has(1) && c.attrs.Int("keepdims", 1) == 0) {
      Shape shape = piece.shape();
      if (piece.valid()) shape.erase(shape.begin() + axis);
      piece = Reshape(piece, std::move(shape));
    }
    pieces.push_back(piece);
    at += size;
  }
  if (at != extent) return Invalid("splits an extent of ", extent, " into ", at);
  return SingleResult(MakeSequence(std::move(pieces)));
}

ImportValuesOr ConcatElements(const ListCall& c) {
  ASSIGN_OR_RETURN(const ListValue* list, SequenceAt(c, 0));
  if (list->elements.empty()) return Invalid("joins an empty sequence");
  const bool new_axis = c.attrs.Int("new_axis", 0) != 0;
  ASSIGN_OR_RETURN(const int64_t axis,
                   NormalizeAxis(c.attrs.Int("axis", 0), list->elements[0].rank() + (new_axis ? 1 : 0)));
  std::vector<Val> parts = list->elements;
  for (Val& part : parts) {
    if (part.rank() != list->elements[0].rank()) return Invalid("joins tensors of different ranks");
    Shape shape = part.shape();
    if (new_axis) shape.insert(shape.begin() + axis, 1);
    part = Reshape(part, std::move(shape));
  }
  return SingleResult(Concat(std::move(parts), axis));
}

ImportValuesOr MakeOptional(const ListCall& c) {
  if (!c.has(0)) return SingleResult(ListValue{.form = {.optional = true}, .present = false});
  if (c.inputs[0].tensor.valid())
    return SingleResult(ListValue{.form = {.optional = true}, .elements = {c.inputs[0].tensor}});
  ListValue list = *c.inputs[0].list;
  if (list.form.optional) return Invalid("wraps an optional in an optional");
  list.form.optional = true;
  return SingleResult(std::move(list));
}

ImportValuesOr HasOptional(const ListCall& c) {
  const bool has = c.has(0) && (c.inputs[0].list == nullptr || c.inputs[0].list->present);
  return SingleResult(c.b.Constant(HostTensor::Scalar(DType::kBool, has ? 1 : 0)));
}

ImportValuesOr GetOptional(const ListCall& c) {
  if (!c.has(0)) return Invalid("input 0 is missing");
  if (c.inputs[0].list == nullptr) return SingleResult(c.inputs[0]);
  ListValue list = *c.inputs[0].list;
  if (!list.present) return Invalid("reads an optional that holds nothing");
  if (!list.form.sequence) return SingleResult(list.elements[0]);
  list.form.optional = false;
  return SingleResult(std::move(list));
}

ImportValuesOr CopyList(const ListCall& c) { return SingleResult(c.inputs[0]); }

struct ListOp {
  std::string_view name;
  int min_inputs, max_inputs;
  ImportValuesOr (*run)(const ListCall&);
};

constexpr ListOp kListOps[] = {
    {"SequenceConstruct", 1, 1 << 20, ConstructSequence},
    {"SequenceEmpty", 0, 0, EmptySequence},
    {"SequenceInsert", 2, 3, InsertElement},
    {"SequenceAt", 2, 2, SelectElement},
    {"SequenceErase", 1, 2, EraseElement},
    {"SequenceLength", 1, 1, CountElements},
    {"SplitToSequence", 1, 2, SplitTensor},
    {"ConcatFromSequence", 1, 1, ConcatElements},
    {"Optional", 0, 1, MakeOptional},
    {"OptionalHasElement", 0, 1, HasOptional},
    {"OptionalGetElement", 1, 1, GetOptional},
    {"Identity", 1, 1, CopyList},
};

const ListOp* FindListOp(std::string_view name) {
  auto it = std::find_if(std::begin(kListOps), std::end(kListOps), [&](const ListOp& op) { return op.name == name; });
  return it == std::end(kListOps) ? nullptr : it;
}

}  // namespace

bool IsListOperator(const ParsedNode& node, const ImportValues& inputs) {
  if (!node.domain.empty()) return false;
  if (node.op_type == "Identity") return !inputs.empty() && inputs[0].list != nullptr;
  return FindListOp(node.op_type) != nullptr;
}

ImportValuesOr ImportListOperator(const ParsedNode& node, const Attrs& attrs, const ImportValues& inputs, Builder* b,
                                  KnownValues* known) {
  const ListOp& op = *FindListOp(node.op_type);
  const auto count = static_cast<int>(inputs.size());
  if (count < op.min_inputs || count > op.max_inputs) {
    return Invalid("has ", count, " inputs, which is too ", count < op.min_inputs ? "few" : "many");
  }
  if (node.outputs.size() > 1) return Invalid("lists ", node.outputs.size(), " outputs");
  return op.run({*b, attrs, inputs, *known});
}

}  // namespace onnxtrain
