#include "frontend/ops/no_gradient.h"

namespace onnxtrain {
namespace {

// Backward operators: their gradients are second derivatives of the model, which only nested
// ai.onnx.preview.training.Gradient nodes need.
constexpr NoGradient kTable[] = {
    {"MaxPoolGrad", "the backward pass of MaxPool: its gradient would be a second derivative"},
    {"GridSampleInputGrad", "the backward pass of GridSample: its gradient would be a second derivative"},
    {"GridSampleGridGrad", "the backward pass of GridSample: its gradient would be a second derivative"},
    {"RoiAlignGrad", "the backward pass of RoiAlign: its gradient would be a second derivative"},
    {"Cofactor", "the backward pass of Det: its gradient would be a second derivative"},
    {"BatchNormGrad", "the backward pass of BatchNorm: its gradient would be a second derivative"},
    {"LayerNormGrad", "the backward pass of LayerNorm: its gradient would be a second derivative"},
    {"LstmGrad", "the backward pass of Lstm: its gradient would be a second derivative"},
    {"GruGrad", "the backward pass of Gru: its gradient would be a second derivative"},
    {"RnnGrad", "the backward pass of Rnn: its gradient would be a second derivative"},
};

}  // namespace

std::span<const NoGradient> OperatorsWithoutGradient() { return kTable; }

std::string_view NoGradientReason(std::string_view op) {
  for (const NoGradient& entry : kTable) {
    if (entry.op == op) return entry.reason;
  }
  return "";
}

}  // namespace onnxtrain
