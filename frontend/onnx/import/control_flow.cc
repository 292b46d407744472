#include "frontend/onnx/import/control_flow.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

Val InsertAxis(Val x, int64_t axis) {
  if (!x.valid()) return x;
  Shape shape = x.shape();
  shape.insert(shape.begin() + axis, 1);
  return Reshape(x, std::move(shape));
}

absl::StatusOr<Val> StackNothing(Builder& b, int64_t axis, const ParsedValue& declared) {
  const bool fixed =
      declared.dtype && declared.has_shape && std::ranges::all_of(declared.dims, [](int64_t d) { return d >= 0; });
  if (!fixed)
    return absl::UnimplementedError(
        StrCat("has no iterations, and its body does not declare the shape of '", Printable(declared.name), "'"));
  Shape shape = declared.dims;
  shape.insert(shape.begin() + std::clamp<int64_t>(axis, 0, static_cast<int64_t>(shape.size())), 0);
  return b.Constant(HostTensor({*declared.dtype, shape}));
}

bool IsSequence(const ImportValue& v) { return v.list != nullptr && v.list->present && v.list->form.sequence; }

// The inputs of the body in iteration i: an element of each sequence, and the tensors as they are.
absl::StatusOr<ImportValues> ElementsAt(const ImportValues& inputs, size_t length, size_t i) {
  ImportValues arguments;
  for (const ImportValue& input : inputs) {
    if (IsSequence(input) && input.list->elements.size() != length)
      return Invalid("maps sequences of ", length, " and of ", input.list->elements.size(), " elements together");
    arguments.push_back(IsSequence(input) ? ImportValue(input.list->elements[i]) : input);
  }
  return arguments;
}

}  // namespace

ControlFn FindControl(const ParsedNode& node) {
  static const std::map<std::string_view, ControlFn> control = {
      {"If", ImportIf}, {"Loop", ImportLoop}, {"Scan", ImportScan}, {"SequenceMap", ImportSequenceMap}};
  const auto it = node.domain.empty() ? control.find(node.op_type) : control.end();
  return it == control.end() ? nullptr : it->second;
}

absl::StatusOr<const ParsedGraph*> FindBody(const ParsedNode& node, std::string_view attribute) {
  const auto it = node.graphs.find(std::string(attribute));
  if (it == node.graphs.end()) return Invalid("has no graph '", attribute, "'");
  return it->second.get();
}

Val ElementAt(Val x, int64_t axis, int64_t i) {
  const Val slice = Slice(x, axis, i, 1);
  if (!slice.valid()) return slice;
  Shape shape = slice.shape();
  shape.erase(shape.begin() + axis);
  return Reshape(slice, std::move(shape));
}

absl::StatusOr<Val> StackIterations(Builder& b, const std::vector<Val>& parts, int64_t axis,
                                    const ParsedValue* declared) {
  if (parts.empty()) return StackNothing(b, axis, *declared);
  ASSIGN_OR_RETURN(const int64_t at, NormalizeAxis(axis, parts[0].rank() + 1));
  std::vector<Val> rows;
  for (Val part : parts) {
    if (!(part.type() == parts[0].type())) {
      return Invalid("'", declared == nullptr ? "" : Printable(declared->name), "' is ", ToString(parts[0].type()),
                     " and then ", ToString(part.type()));
    }
    rows.push_back(InsertAxis(part, at));
  }
  return Concat(std::move(rows), at);
}

// The body runs for each element of the first input. Other sequences advance with it; tensors are seen whole.
ImportValuesOr ImportSequenceMap(ControlNode& c) {
  ASSIGN_OR_RETURN(const ParsedGraph* body, FindBody(c.node, "body"));
  if (c.inputs.empty() || !IsSequence(c.inputs[0])) return Invalid("its first input should be a sequence");
  const size_t length = c.inputs[0].list->elements.size();
  std::vector<ListValue> mapped(body->outputs.size(), ListValue{.form = {.sequence = true}});
  for (size_t i = 0; i < length; ++i) {
    ASSIGN_OR_RETURN(ImportValues arguments, ElementsAt(c.inputs, length, i));
    ASSIGN_OR_RETURN(const ImportValues results,
                     c.import_body({.attribute = "body", .label = StrCat(i), .inputs = std::move(arguments)}));
    for (size_t k = 0; k < results.size(); ++k) {
      ASSIGN_OR_RETURN(mapped[k].elements.emplace_back(), RequireTensor(results[k], "an output of its body"));
    }
  }
  return ImportValues(mapped.begin(), mapped.end());
}

}  // namespace onnxtrain
