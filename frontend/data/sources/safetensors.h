// Named tensors in one file, in the format safetensors: a JSON header with types, shapes and offsets, then the bytes.
// https://huggingface.co/docs/safetensors
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
#include "frontend/data/sources/npz.h"

namespace onnxtrain {

struct NamedType {
  std::string name;
  Type type;
};

// Returns everything before the tensors' bytes, which follow one another in the order of `tensors`; a multiple of 8
// bytes. `metadata` maps texts to texts. Fails on an element type that the format has not, and on equal names.
absl::StatusOr<std::string> SafetensorsHeader(const std::vector<NamedType>& tensors,
                                              const std::map<std::string, std::string>& metadata = {});

// Reads a whole file. Names, types, shapes and offsets are checked against the file's length, and that against
// `max_bytes` (0: half of the available memory), before memory is allocated. Errors name the file and the tensor.
absl::StatusOr<NamedArrays> ReadSafetensors(const std::string& path, int64_t max_bytes = 0);

using ArrayVisitor = std::function<absl::Status(const std::string& name, HostTensor value)>;

// Passes every tensor of a stream of `size` bytes in this format to `visit`, one at a time, and ends at its first
// error. Messages do not name the stream.
absl::Status VisitSafetensors(const ReadFn& read, int64_t size, const ArrayVisitor& visit);

// Reads such a stream into memory.
absl::StatusOr<NamedArrays> ReadSafetensors(const ReadFn& read, int64_t size, int64_t max_bytes = 0);

// Opens a file as a data set: one column per tensor, in the order of their bytes, of the same leading extent. Holds
// files up to 64 MiB in memory and reads samples of larger ones when they are needed.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenSafetensors(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
