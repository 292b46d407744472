#include "frontend/onnx/interop/training_info_writer.h"

#include <onnx/onnx_pb.h>

#include <span>

#include "frontend/base/status.h"
#include "frontend/onnx/interop/training_algorithm.h"
#include "frontend/onnx/read/model_proto.h"

namespace onnxtrain {

absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto model, ParseModelProto(std::as_bytes(std::span(inference))));
  ASSIGN_OR_RETURN(const auto training, ParseModelProto(std::as_bytes(std::span(step))));
  onnx::GraphProto &graph = *model->mutable_graph(), &algorithm = *training->mutable_graph();
  // Only what is no input can be updated.
  Erase(ListNames(graph.initializer()), graph.mutable_input());
  RenameClashes(graph, &algorithm);
  Names shared = ListNames(graph.input());
  shared.merge(ListNames(graph.initializer()));
  Erase(shared, algorithm.mutable_initializer());
  Names known = shared;  // no input of the algorithm
  known.merge(ListNames(algorithm.initializer()));
  Erase(known, algorithm.mutable_input());
  AppendTrainingInfo(&algorithm, metadata, model.get());
  return model->SerializeAsString();
}

}  // namespace onnxtrain
