#include "frontend/onnx/interop/ort_adapter.h"

#include <array>
#include <cstdint>
#include <limits>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/onnx/interop/flatbuffer.h"

namespace onnxtrain {
namespace {

constexpr char kIdentifier[] = "TORT";
constexpr int32_t kFormatVersion = 1;
constexpr int kParameters = 3;  // the field of the root table after the versions of format, adapter and model
constexpr FlatTensorFields kParameter{.name = 0, .dims = 1, .data_type = 2, .raw_data = 3};

}  // namespace

absl::Status WriteOrtAdapter(const std::string& path, const std::map<std::string, HostTensor>& tensors) {
  const std::array<int32_t, 3> versions = {kFormatVersion, 1, 1};
  const auto bytes = WriteFlatTensors(kIdentifier, versions, tensors);
  if (!bytes.ok()) return Annotate(bytes.status(), path + ": ");
  return WriteTextFile(path, *bytes);
}

absl::StatusOr<std::map<std::string, HostTensor>> ReadOrtAdapter(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, std::numeric_limits<int32_t>::max()));
  const auto bytes = std::as_bytes(std::span(text));
  if (!HasFlatIdentifier(bytes, kIdentifier)) return Invalid(path, ": is no adapter of ONNX Runtime");
  const FlatReader reader(bytes);
  const size_t root = reader.root(), version = reader.Field(root, 0);
  if (version == 0 || reader.Read<int32_t>(version) != kFormatVersion)
    return Invalid(path, ": is damaged, or not in version ", kFormatVersion, " of the format");
  auto tensors = ReadFlatTensors(reader, reader.Tables(root, kParameters), kParameter);
  return tensors.ok() ? tensors : Annotate(tensors.status(), path + ": ");
}

}  // namespace onnxtrain
