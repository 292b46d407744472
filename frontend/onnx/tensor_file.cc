#include "frontend/onnx/tensor_file.h"

#include <onnx/onnx_pb.h>

#include "frontend/base/status.h"
#include "frontend/onnx/file.h"
#include "frontend/onnx/guard.h"
#include "frontend/onnx/tensor_proto.h"

namespace onnxtrain {

absl::StatusOr<HostTensor> LoadTensorFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadProtoFile(path));
  const std::string tag = StrCat(path, ": ");
  RETURN_IF_ERROR(Annotate(GuardTensorBytes(bytes), tag));
  auto proto = std::make_shared<onnx::TensorProto>();
  if (!proto->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Invalid(tag, "is not a tensor");
  auto tensor = ReadTensor(*proto, proto, nullptr);
  if (!tensor.ok()) return Annotate(tensor.status(), StrCat(tag, "the tensor "));
  if (!tensor->opaque.empty()) return absl::UnimplementedError(StrCat(tag, "tensor of ", tensor->opaque));
  return tensor->tensor;
}

}  // namespace onnxtrain
