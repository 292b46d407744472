// Tells what inputs of nodes are, and plans weights of their own for readers of merged initializers.
#pragma once

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/onnx/recover/weight_index.h"

namespace onnxtrain {

// Returns true if an input of the node can only be a weight: of a product, convolution, normalization or recurrence.
bool TakesWeight(const ParsedNode& node, size_t input);

// Returns true if the node reads no elements of its input.
bool ReadsShapeOnly(const ParsedNode& node);

// Names an input of a node by an output of the node.
FileReader MakeFileReader(const ParsedNode& node, size_t input);

// Names the copies that readers of merged initializers get. The graph stays as it is.
class SplitPlanner {
 public:
  // `index` must outlive it.
  explicit SplitPlanner(const WeightIndex& index) : index_(index) {}

  // Adds a copy for these readers, called `split.name`, or like it if the name is taken. Returns its name.
  std::string Plan(SplitWeight split);
  // Returns true if some readers of the initializer have copies.
  bool IsSplit(const std::string& merged) const;
  std::vector<SplitWeight> TakeSplits() { return std::move(splits_); }

 private:
  const WeightIndex& index_;
  std::vector<SplitWeight> splits_;
  std::unordered_set<std::string> names_;
};

}  // namespace onnxtrain
