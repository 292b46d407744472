// Shared by programs: the checks of Program::Fetch.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

struct ValueReader {
  std::function<const std::byte*(ValueId)> find;  // null: not computed yet
  std::function<absl::Status(std::byte* to, const std::byte* from, size_t bytes)> copy;
};

// Returns a copy of a value of the graph. Fails where the program was not compiled to keep its values, where there is
// no such value and where it has not been computed.
absl::StatusOr<HostTensor> FetchValue(const Graph& graph, const CompileOptions& options, ValueId value,
                                      const ValueReader& reader);

}  // namespace onnxtrain
