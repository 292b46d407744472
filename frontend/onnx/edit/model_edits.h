// Represents changes of a model's structure, which surgery (surgery.h) plans. Load and Export apply the same edits to
// the same file, so the exported model is the one that was trained.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/onnx/recover/weight_origin.h"

namespace onnxtrain {

struct StoredBlocks;  // frontend/ops/quantize_blocks.h

struct ModelEdits {
  struct NewNode {
    std::string op_type, name;
    std::vector<std::string> inputs, outputs;
    Attrs attrs;  // numbers and lists of integers
  };
  // Changes extent `from` to `to` in the declared shape of a value (output, value_info or input): at `axis`, or if that
  // is -1, at axis 1 of values with more than two axes if it has the extent, else at the last axis that has it.
  struct Extent {
    std::string value;
    int64_t from = 0, to = 0;
    int axis = -1;
  };
  struct NewInput {  // changes an input of an existing node, identified by its first output
    std::string node;
    size_t input = 0;
    std::string name;
  };
  struct NewInts {  // an attribute of an existing node
    std::string node, attribute;
    std::vector<int64_t> values;
  };
  struct Output {
    std::string name;
    DType dtype = DType::kFloat32;
    std::vector<std::string> dims;  // numbers or names
  };

  // New tensors by name. They replace initializers and outputs of nodes, of any shape, and keep the stored element
  // type; OUTPUT.ATTRIBUTE replaces a list of floats in the node with that output; other names become initializers.
  std::map<std::string, HostTensor> tensors;
  std::vector<NewNode> nodes;      // appended to the model's own
  std::vector<SplitNodes> copies;  // copies of nodes, made before `inputs` changes
  std::vector<NewInput> inputs;
  std::vector<NewInts> attributes;
  std::vector<Extent> extents;
  std::vector<Output> outputs;     // if not empty, replaces the model's outputs
  std::vector<std::string> lines;  // descriptions for users
  std::vector<WeightTie> ties;     // by name in the file or in the exported module
  bool tie_stored_twice = true;    // tie initializers that hold one parameter of the exported module
  std::vector<LowRankUpdate> low_rank;
  // Weights of products beside low-rank updates, by name: the graph reads these blocks instead of the floats. The
  // export does not.
  std::map<std::string, std::shared_ptr<const StoredBlocks>> blocks;
  bool requantize = false;         // the export quantizes the sums of quantized weights and low-rank updates
  std::vector<std::string> whole;  // weights of new heads and of adapters, which are trained with low-rank updates
  std::set<std::string> replaced;  // weights of the file in `whole` that an adapter has replaced

  // Returns true if the file is unchanged. Ties and low-rank updates only change how it is trained.
  bool empty() const {
    return tensors.empty() && nodes.empty() && copies.empty() && inputs.empty() && attributes.empty() &&
           extents.empty() && outputs.empty();
  }
};

}  // namespace onnxtrain
