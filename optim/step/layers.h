// Groups weights into layers in graph order, for layer-wise learning rate decay.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "optim/step/prepare.h"

namespace onnxtrain {

struct Layer {
  std::string name;  // "encoder.layer.3", "fc"
  std::vector<std::string> weights;
};

// Returns the position of the first node that reads each graph input; that of no node where none does.
std::map<std::string, int32_t> FindFirstReaders(const Graph& graph);

// Returns the layers in the order in which the graph first reads them. A layer is a module: its name up to the first
// number ("layer1.0" of "layer1.0.conv1.weight"), or at most two levels ("encoder.embeddings"). A weight outside of any
// module is grouped by the node that reads it. A module without a matrix (a norm between two layers) joins the layer
// before it.
std::vector<Layer> ListLayers(const PreparedModel& model);

}  // namespace onnxtrain
