// Traces operands of a parsed model back to the stored weights that they are views or casts of.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns true if the node is one of these operators of ai.onnx, with the operands that it must have.
bool IsOp(const ParsedNode& node, std::initializer_list<std::string_view> ops);

// Return whether a node is an Identity, which exporters write for tied weights and barriers, or a Constant.
bool IsIdentity(const ParsedNode& node);
bool IsConstant(const ParsedNode& node);

// Returns true if the node only moves or casts the elements of its first input.
bool IsViewOrCast(const ParsedNode& node);

// Returns the prefix of messages about a node: "[Conv 'layer1/conv'] ".
std::string NodeTag(const ParsedNode& node);

// Returns the permutation of a Transpose whose input has this rank.
std::vector<int64_t> Permutation(const ParsedNode& transpose, size_t rank);

// A stored tensor, and the data movement between it and an operand.
struct TracedWeight {
  std::string tensor;
  Shape stored;                            // shape of the tensor
  Shape shape;                             // shape of the operand
  std::vector<const ParsedNode*> through;  // from the operand back to the tensor
  std::vector<Shape> before;               // the input shape of each of them
};

class WeightTracer {
 public:
  // `model` must outlive it.
  explicit WeightTracer(const OnnxModel::Parsed& model);

  const OnnxModel::Parsed& model() const { return model_; }
  // Returns the producer of a value, or null.
  const ParsedNode* Producer(const std::string& name) const;
  // Returns the stored tensor of an operand. Fails if anything but Identity, Cast, Transpose and Reshape is between
  // them.
  absl::StatusOr<TracedWeight> Trace(const std::string& name) const;
  // Fails if any node but `reader` reads the weight.
  absl::Status CheckUntied(const TracedWeight& weight, const ParsedNode& reader) const;
  // Returns the tensor of an initializer or Constant node, or null.
  const HostTensor* FindTensor(const std::string& name) const;
  // Returns the target shape of a Reshape; nullopt if it is computed.
  std::optional<std::vector<int64_t>> ReshapeTarget(const ParsedNode& reshape) const;
  // Returns the elements of a constant operand; nullopt if it is absent or computed.
  std::optional<std::vector<int64_t>> FindInts(const ParsedNode& node, size_t input) const;
  // Returns the number of nodes and outputs that read a name.
  size_t CountReaders(const std::string& name) const;
  // Returns true if the graph uses the name for anything.
  bool IsNameTaken(const std::string& name) const;

 private:
  absl::StatusOr<TracedWeight> TraceStored(const std::string& name, const ParsedNode* producer) const;
  absl::StatusOr<Shape> MovedShape(const ParsedNode& node, const Shape& shape) const;
  absl::StatusOr<Shape> ReshapedShape(const ParsedNode& reshape, const Shape& shape) const;

  const OnnxModel::Parsed& model_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
  std::unordered_map<std::string, std::vector<const ParsedNode*>> users_;
};

}  // namespace onnxtrain
