// The layers of a model in graph order, for learning rates that fall from the output to the input.
#pragma once

#include <string>
#include <vector>

#include "optim/prepare.h"

namespace onnxtrain {

struct Layer {
  std::string name;                  // "encoder.layer.3", "fc"
  std::vector<std::string> weights;
};

// A layer is a module: up to its number where it has one ("layer1.0" of "layer1.0.conv1.weight"), else at most two levels
// ("encoder.embeddings"); weights outside any module are layers by the node that reads them. One without a matrix (a norm between
// two layers) belongs to the layer before it. In the order in which the graph reads them first.
std::vector<Layer> LayersInOrder(const PreparedModel& model);

}  // namespace onnxtrain
