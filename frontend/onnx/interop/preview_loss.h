// The loss of a model as an algorithm of ai.onnx.preview.training. For the sources of this folder alone.
#pragma once

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace onnxtrain {

constexpr char kPreviewLoss[] = "loss";

// Leaves in the graph of loss and outputs what the loss is computed from, up to outputs of the model. False, with the
// graph as it was, where the loss reads other values of the model.
bool KeepLoss(const onnx::GraphProto& inference, onnx::GraphProto* graph);

}  // namespace onnxtrain
