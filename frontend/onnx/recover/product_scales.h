// Finds the scales of weights that only integer products read.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace onnxtrain {

struct ParsedGraph;

// The names of a node, parsed or of a message.
struct NodeNames {
  std::string domain, op_type;
  std::vector<std::string> inputs, outputs;
};

// Returns the scale for each product of an integer weight (by index into `nodes`) whose operator has none. Tools that
// quantize activations at run time write MatMulInteger or ConvInteger, perhaps Add of a rounded bias, then Cast, then
// Mul by the scale of the activations times that of the weight. `is_initializer` tells the stored one of the two from
// the computed one.
std::map<size_t, std::string> FindProductScales(const std::vector<NodeNames>& nodes,
                                                const std::function<bool(const std::string&)>& is_initializer);

// Appends these scales to the inputs of their nodes, where the import looks for them. They are not trained.
void AttachProductScales(ParsedGraph* graph);

}  // namespace onnxtrain
