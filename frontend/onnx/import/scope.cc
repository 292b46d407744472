#include "frontend/onnx/import/scope.h"

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<Val> RequireTensor(const ImportValue& value, std::string_view what) {
  if (value.tensor.valid()) return value.tensor;
  return Invalid(what, value.list != nullptr ? " is a sequence or optional, not a tensor" : " is missing");
}

absl::StatusOr<Attrs> ResolveAttrs(const ImportScope& scope, const ParsedNode& node) {
  Attrs attrs = node.attrs;
  for (const auto& [name, outer] : node.refs) {
    if (scope.call == nullptr)
      return Invalid("attribute '", Printable(name), "' refers to a function's attribute outside a function");
    for (const auto& [key, value] : *scope.call) {
      if (key == outer) attrs.Set(name, value);
    }
  }
  return attrs;
}

}  // namespace onnxtrain
