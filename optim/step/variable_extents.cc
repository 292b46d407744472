#include "optim/step/session.h"

#include <algorithm>

namespace onnxtrain {
namespace {

VariableExtents TakeExtents(const SessionOptions& options, const Shape& shape) {
  VariableExtents extents = {};
  std::copy_n(shape.begin() + options.variable_inputs[0].axis, options.variable_extents, extents.begin());
  return extents;
}

}  // namespace

VariableExtents GreatestExtents(const SessionOptions& options) {
  if (options.variable_inputs.empty()) return {};
  return TakeExtents(options, options.import.input_shapes.at(options.variable_inputs[0].name));
}

VariableExtents FindExtents(const SessionOptions& options, const GlobalBatch& part) {
  const HostTensor* input = options.variable_inputs.empty() ? nullptr : part.Find(options.variable_inputs[0].name);
  const size_t rank = input != nullptr ? input->shape().size() : 0;
  const bool given = rank > 0 && rank >= options.variable_inputs[0].axis + options.variable_extents;
  return given ? TakeExtents(options, input->shape()) : GreatestExtents(options);
}

PrepareOptions PrepareAt(const SessionOptions& options, const VariableExtents& extents) {
  PrepareOptions prepare = MakePrepareOptions(options);
  const auto set = [&](Shape& shape, int axis) {
    std::copy_n(extents.begin(), options.variable_extents, shape.begin() + axis);
  };
  for (const VariableInput& input : options.variable_inputs)
    set(prepare.import.input_shapes.at(input.name), input.axis);
  if (options.variable_label_axis >= 0) set(prepare.labels.sample.shape, options.variable_label_axis);
  return prepare;
}

}  // namespace onnxtrain
