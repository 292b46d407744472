// Changes of a model's structure, as data: what surgery wants done to the file. Loading a model with edits and exporting it
// apply the same list to the same bytes, so that what was trained is what is written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "frontend/graph/attrs.h"

namespace onnxtrain {

struct ModelEdits {
  struct NewNode {
    std::string op_type, name;
    std::vector<std::string> inputs, outputs;
    Attrs attrs;  // numbers and lists of integers
  };
  // Extent `from` of the declared shape of a value (output, value_info or input) becomes `to`: at `axis`, or, where that
  // is -1, at axis 1 of values with more than two axes that have it there, else at the last axis that has it.
  struct Extent {
    std::string value;
    int64_t from = 0, to = 0;
    int axis = -1;
  };
  struct NewInput {  // of an existing node, which is named by its first output
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
    std::vector<std::string> dims;  // a number or a name each
  };

  // Initializers, or what Constant and other nodes made: replaced (keeping the stored element type), whatever the shape
  // was; OUTPUT.ATTRIBUTE: a list of floats that the node of that output holds; names that are not there become initializers.
  std::map<std::string, HostTensor> tensors;
  std::vector<NewNode> nodes;      // behind the model's own
  std::vector<NewInput> inputs;
  std::vector<NewInts> attributes;
  std::vector<Extent> extents;
  std::vector<Output> outputs;     // instead of the model's own, where there are any
  std::vector<std::string> lines;  // what is done, for people

  bool empty() const {
    return tensors.empty() && nodes.empty() && inputs.empty() && attributes.empty() && extents.empty() && outputs.empty();
  }
};

}  // namespace onnxtrain
