// Finds out which weights of the exported program the initializers of a file are, and undoes merges by equal bytes.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// An initializer that the exporter computed from parameters, and that trains as a value of its own.
struct FoldedWeight {
  std::string name;
  std::vector<std::string> parameters;  // by their names in the module
};

struct NamingFindings {
  std::vector<std::string> missing;  // parameters that no initializer holds, because they were folded into others
  std::vector<std::string> unread;   // parameters that nothing in the file stands for or reads
  std::vector<FoldedWeight> folded;
  std::vector<std::string> looked_up;  // initializers computed from parameters and further values
  std::vector<std::pair<std::string, ParameterFunction>> functions;  // initializers computed from one parameter each
};

// Fills `origins` from the metadata of torch.export and gives readers of merged initializers weights of their own.
//
// PyTorch's exporter merges initializers of equal bytes: in a fresh model all scales of LayerNorm are one. The fx node
// of each reader names the parameters that it was translated from. Weights that the program shares are one parameter
// there and stay one here. Biases that the exporter removed because they were zeros are weights again.
NamingFindings NameWeights(const TorchMetadata& metadata, ParsedGraph* graph);

// Does the same for files without such metadata, from what the readers do: the scales and biases of normalizations and
// the biases of products in different modules are different weights. Names weights like "onnx::MatMul_264" after the
// module of their reader.
void NameWeightsByReaders(ParsedGraph* graph);

// Ties the weights that `edits` names, and those that are one parameter of the exported module: of each pair one
// initializer remains, and a node makes the other from it. Fails on tensors that are no weights or differ.
absl::Status TieWeights(const ModelEdits& edits, ParsedGraph* graph);

// Whether an input of the node can only be a weight: of a product, convolution, normalization or recurrence.
bool TakesWeight(const ParsedNode& node, size_t input);

// Whether the graph has an input, an initializer or a node's output of that name.
bool IsNameTaken(const ParsedGraph& graph, const std::string& name);

// Whether the node reads no elements of its input.
bool ReadsShapeOnly(const ParsedNode& node);

// Gives readers of merged initializers copies of their own.
class WeightSplitter {
 public:
  // `graph` must outlive it.
  explicit WeightSplitter(ParsedGraph* graph);

  // Makes these inputs of nodes read a copy of `merged` called `name`, or like it if the name is taken. Returns its
  // name.
  std::string Split(const std::string& merged, const std::string& name, const std::vector<WeightReader>& readers);
  // Makes these inputs of nodes, which may be absent, read a weight of zeros that the file does not hold. It counts as
  // split from "".
  std::string Restore(const std::string& name, HostTensor zeros, const std::vector<WeightReader>& readers);
  // Whether some readers of the initializer have copies.
  bool IsSplit(const std::string& merged) const;

 private:
  std::string Add(SplitWeight split, HostTensor value, const std::vector<WeightReader>& readers);

  ParsedGraph& graph_;
  std::unordered_set<std::string> names_;
};

}  // namespace onnxtrain
