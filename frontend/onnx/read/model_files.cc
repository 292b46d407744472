#include "frontend/onnx/read/model_files.h"

#include <onnx/onnx_pb.h>

#include <filesystem>

#include "frontend/onnx/interop/ort_artifacts.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/model_proto.h"
#include "frontend/onnx/read/proto_util.h"

namespace onnxtrain {

std::vector<std::string> ListModelFiles(const std::string& path) {
  std::vector<std::string> files = ListOrtArtifacts(path);
  files.push_back(path);
  const auto file = MapProtoFile(path);
  const auto model = file.ok() ? ParsePartialModel((*file)->bytes()) : file.status();
  if (!model.ok()) return files;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const absl::Status visited = ForEachTensor(model->proto.get(), [&](onnx::TensorProto* tensor) {
    for (const onnx::StringStringEntryProto& entry : tensor->external_data()) {
      if (entry.key() == "location") files.push_back((folder / entry.value()).string());
    }
    return absl::OkStatus();
  });
  visited.IgnoreError();  // the visitor never fails
  return files;
}

}  // namespace onnxtrain
