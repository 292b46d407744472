// Writes trained weights into the message of a model.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace onnx

namespace onnxtrain {

// Writes copies of nodes into a model.

// Adds the copies behind the nodes and makes their readers read them. Returns false, and changes nothing, where the
// graph has no such nodes. Pointers to nodes stay valid.
bool AddNodeCopies(const SplitNodes& split, onnx::GraphProto* graph);

// Replaces weights wherever the importer finds them, in the graph and in bodies: initializers, Constant nodes,
// attributes of ai.onnx.ml, Identity nodes over shared initializers, and ConstantOfShape nodes. Floats are cast to the
// stored element type. Names, order and untouched bytes stay.
class WeightReplacer {
 public:
  struct Counts {
    int initializers = 0, constants = 0, attributes = 0;
    int filled = 0;         // ConstantOfShape nodes that became initializers
    int split_copies = 0;   // Identity nodes that became initializers
    int split_weights = 0;  // readers of merged initializers that got their own
    int restored_biases = 0;
    int copied_nodes = 0;

    bool operator==(const Counts&) const = default;
  };

  // `files` reads the external data of the model. Both must outlive the replacer.
  WeightReplacer(onnx::ModelProto* model, ExternalFiles* files);

  // Nodes to copy where a weight that a copy reads is replaced.
  void SetSplitNodes(std::vector<SplitNodes> nodes) { split_nodes_ = std::move(nodes); }

  // The raw_data of initializers that is not in their messages. New values are kept beside the messages, too.
  void SetExtracted(std::map<const onnx::TensorProto*, LazyTensor> raw_data) { extracted_ = std::move(raw_data); }

  // Whether the weight is the output of an Identity over an initializer: then it is replaced after that, and stays what
  // it is where both are equal.
  bool IsCopy(const std::string& name) const;
  // Replaces one weight. Errors do not name it.
  absl::Status Replace(const std::string& name, const LazyTensor& value);
  // Replaces a weight that the file has merged into an initializer, which may have been replaced before: adds an
  // initializer for it if the values differ.
  absl::Status ReplaceSplit(const SplitWeight& split, const LazyTensor& value);
  // The value of an initializer, replaced or not.
  absl::StatusOr<HostTensor> ReadInitializer(const std::string& name);
  // Removes the nodes that initializers have replaced; afterwards no weight can be replaced.
  void RemoveReplacedNodes();

  // Reads an initializer or the value of a Constant node, before it is replaced.
  absl::StatusOr<HostTensor> ReadConstant(const std::string& name);
  // The tensor of an initializer or of a Constant node, or null.
  const onnx::TensorProto* FindTensor(const std::string& name);
  // Reads a tensor as the file stores it.
  absl::StatusOr<HostTensor> ReadStored(const onnx::TensorProto& proto);
  // The new bytes of tensors with external data.
  const std::map<const onnx::TensorProto*, LazyTensor>& external() const { return external_; }
  // The bytes of SetExtracted, old or new.
  const std::map<const onnx::TensorProto*, LazyTensor>& extracted() const { return extracted_; }
  const Counts& counts() const { return counts_; }

 private:
  absl::StatusOr<HostTensor> ReadMerged(const SplitWeight& split, const Shape& shape);
  absl::Status ReplaceTensor(const LazyTensor& value, onnx::TensorProto* proto, int* changed);
  absl::Status ReplaceInAttribute(const std::string& name, const LazyTensor& value);
  absl::Status ReplaceCopy(const LazyTensor& value, onnx::NodeProto* node);
  absl::Status ReplaceFilled(const LazyTensor& value, onnx::NodeProto* node);
  void ReplaceNode(const onnx::NodeProto* node, const HostTensor& value);
  onnx::NodeProto* FindReader(const std::string& output);

  onnx::ModelProto& model_;
  onnx::GraphProto* graph_;
  ExternalFiles& files_;
  std::map<std::string, onnx::TensorProto*> initializers_;
  std::map<std::string, onnx::NodeProto*> producers_;
  std::map<const onnx::TensorProto*, LazyTensor> external_, extracted_;
  std::set<const onnx::NodeProto*> replaced_nodes_;
  std::vector<SplitNodes> split_nodes_;  // that are not in the model yet
  Counts counts_;
};

}  // namespace onnxtrain
