#include "backends/fetch_value.h"

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<HostTensor> FetchValue(const Graph& graph, const CompileOptions& options, ValueId value,
                                      const ValueReader& reader) {
  if (!options.keep_values) return absl::FailedPreconditionError("the program was not compiled to keep its values");
  if (value < 0 || value >= static_cast<ValueId>(graph.values().size())) return Invalid("there is no value ", value);
  const std::byte* data = reader.find(value);
  if (data == nullptr) return absl::NotFoundError(StrCat("value ", value, " has not been computed"));
  HostTensor tensor(graph.type(value));
  RETURN_IF_ERROR(reader.copy(tensor.mutable_bytes().data(), data, tensor.bytes().size()));
  return tensor;
}

}  // namespace onnxtrain
