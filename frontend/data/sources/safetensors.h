// The safetensors format: a JSON header with types, shapes and offsets, then the bytes of named tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/numpy.h"

namespace onnxtrain {

struct NamedType {
  std::string name;
  Type type;
};

// Returns the bytes of the file before the tensors, a multiple of 8; the tensors follow in the order of `tensors`.
// Fails on an element type that the format does not have, and on equal names.
absl::StatusOr<std::string> SafetensorsHeader(const std::vector<NamedType>& tensors,
                                              const std::map<std::string, std::string>& metadata = {});

// Reads a whole file. Before allocating memory, checks names, types, shapes and offsets against the length of the file,
// and that against `max_bytes` (0: half of the available memory). Errors name the file and the tensor.
absl::StatusOr<NamedArrays> ReadSafetensors(const std::string& path, int64_t max_bytes = 0);

using ArrayVisitor = std::function<absl::Status(const std::string& name, HostTensor value)>;

// Calls `visit` with each tensor of a stream of `size` bytes, one at a time, until it fails. Messages do not name the
// stream.
absl::Status VisitSafetensors(const ReadFn& read, int64_t size, const ArrayVisitor& visit);

// Reads a stream of `size` bytes into memory.
absl::StatusOr<NamedArrays> ReadSafetensors(const ReadFn& read, int64_t size, int64_t max_bytes = 0);

// Opens a file as a data set with a column per tensor, in the order of their bytes, of the same leading extent. Reads
// files up to 64 MiB into memory, and samples of larger ones on demand.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenSafetensors(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
