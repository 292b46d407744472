#include "frontend/base/status.h"
#include "frontend/onnx/import/control_flow.h"
#include "frontend/onnx/import/error_list.h"

namespace onnxtrain {
namespace {

// A value of one element in the form of `other`, where that has one, too, and more axes: branches differ in whether
// they write a scalar or a vector.
Val WithAxesOf(Val v, Val other) {
  const bool single = v.valid() && other.valid() && v.type().elements() == 1 && other.type().elements() == 1;
  return single && v.rank() < other.rank() ? Reshape(v, other.shape()) : v;
}

// Chooses between two values by a condition that is known only at run time.
absl::StatusOr<Val> SelectTensor(Val condition, Val a, Val b, std::string_view name) {
  if (a.valid() && b.valid() && a.id() == b.id()) return a;
  a = WithAxesOf(a, b);
  b = WithAxesOf(b, a);
  if (!a.valid() || !b.valid() || !(a.type() == b.type())) {
    return absl::UnimplementedError(StrCat("its condition is known only at run time, and '", Printable(name), "' is ",
                                           a.valid() ? ToString(a.type()) : "nothing", " in one branch and ",
                                           b.valid() ? ToString(b.type()) : "nothing", " in the other"));
  }
  return Where(condition, a, b);
}

bool HaveSameLength(const ImportValue& a, const ImportValue& b) {
  return a.list != nullptr && b.list != nullptr && a.list->present == b.list->present &&
         a.list->elements.size() == b.list->elements.size();
}

absl::StatusOr<ImportValue> SelectValue(Val condition, const ImportValue& a, const ImportValue& b,
                                        std::string_view name) {
  if (a.list == nullptr && b.list == nullptr) {
    ASSIGN_OR_RETURN(const Val v, SelectTensor(condition, a.tensor, b.tensor, name));
    return ImportValue(v);
  }
  if (!HaveSameLength(a, b)) {
    return absl::UnimplementedError(StrCat("its condition is known only at run time, and the sequence or optional '",
                                           Printable(name),
                                           "' differs between the branches in more than its elements' values"));
  }
  ListValue list = *a.list;
  for (size_t i = 0; i < list.elements.size(); ++i) {
    ASSIGN_OR_RETURN(list.elements[i], SelectTensor(condition, a.list->elements[i], b.list->elements[i], name));
  }
  return ImportValue(std::move(list));
}

// Computes both branches. Where passes gradients to the chosen one, whatever the other one holds.
ImportValuesOr ImportBothBranches(ControlNode& c, Val condition) {
  if (condition.dtype() != DType::kBool || condition.type().elements() != 1)
    return Invalid("its condition should be one bool, got ", ToString(condition.type()));
  const auto yes = c.import_body({.attribute = "then_branch", .label = "then", .conditional = true});
  const auto no = c.import_body({.attribute = "else_branch", .label = "else", .conditional = true});
  if (!yes.ok() || !no.ok()) {
    const absl::Status& status = yes.ok() ? no.status() : yes.status();
    if (status != AlreadyReported()) return status;
    return absl::UnimplementedError(
        "its condition is known only at run time, and one of its branches cannot be imported");
  }
  const Val scalar = Reshape(condition, {});
  ImportValues results;
  for (size_t i = 0; i < yes->size(); ++i) {
    ASSIGN_OR_RETURN(ImportValue chosen, SelectValue(scalar, (*yes)[i], (*no)[i], c.node.outputs[i]));
    results.push_back(std::move(chosen));
  }
  return results;
}

}  // namespace

ImportValuesOr ImportIf(ControlNode& c) {
  if (c.inputs.size() != 1) return Invalid("expected 1 input, got ", c.inputs.size());
  ASSIGN_OR_RETURN(const Val condition, RequireTensor(c.inputs[0], "its condition"));
  for (std::string_view branch : {"then_branch", "else_branch"}) {
    ASSIGN_OR_RETURN(const ParsedGraph* graph, FindBody(c.node, branch));
    if (graph->outputs.size() == c.node.outputs.size()) continue;
    return Invalid("lists ", c.node.outputs.size(), " outputs, its ", branch, " has ", graph->outputs.size());
  }
  if (c.known.Find(condition) == nullptr) return ImportBothBranches(c, condition);
  ASSIGN_OR_RETURN(const int64_t taken, c.known.FindInt(c.inputs[0], "its condition"));
  return c.import_body({.attribute = taken != 0 ? "then_branch" : "else_branch"});
}

}  // namespace onnxtrain
