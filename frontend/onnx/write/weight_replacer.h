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

// Inserts copies after the nodes and redirects the readers of `split` to them. Returns false, and changes nothing, if
// the graph has no such nodes. Pointers to nodes stay valid.
bool AddNodeCopies(const SplitNodes& split, onnx::GraphProto* graph);

// Replaces weights wherever the importer finds them, in the graph and in bodies: initializers, Constant nodes,
// attributes of ai.onnx.ml, Identity nodes of shared initializers, and ConstantOfShape nodes. Casts floats to the
// stored element type. Preserves names, order and the bytes of unchanged weights.
class WeightReplacer {
 public:
  struct Counts {
    int initializers = 0, constants = 0, attributes = 0;
    int filled = 0;         // ConstantOfShape nodes that became initializers
    int split_copies = 0;   // Identity nodes that became initializers
    int split_weights = 0;  // weights separated from merged initializers
    int restored_biases = 0;
    int copied_nodes = 0;

    bool operator==(const Counts&) const = default;
  };

  // `files` reads the external data of the model. Both must outlive the replacer.
  WeightReplacer(onnx::ModelProto* model, ExternalFiles* files);

  // Sets nodes to copy once a weight that a copy reads is replaced.
  void SetSplitNodes(std::vector<SplitNodes> nodes) { split_nodes_ = std::move(nodes); }

  // Sets the raw_data that was extracted from the messages of initializers. New values stay outside of the messages,
  // too.
  void SetExtracted(std::map<const onnx::TensorProto*, LazyTensor> raw_data) { extracted_ = std::move(raw_data); }

  // Returns true if the weight is the output of an Identity of an initializer. Such a weight must be replaced after the
  // initializer, and stays an Identity if both are equal.
  bool IsCopy(const std::string& name) const;
  // Replaces one weight. Errors do not name it.
  absl::Status Replace(const std::string& name, const LazyTensor& value);
  // Replaces a weight that the file has merged into an initializer: adds an initializer if the value differs from the
  // current value of the merged one.
  absl::Status ReplaceSplit(const SplitWeight& split, const LazyTensor& value);
  // Returns the current value of an initializer.
  absl::StatusOr<HostTensor> ReadInitializer(const std::string& name);
  // Removes the nodes that initializers have replaced; afterwards no weight can be replaced.
  void RemoveReplacedNodes();

  // Returns an initializer or the value of a Constant node, which must not have been replaced.
  absl::StatusOr<HostTensor> ReadConstant(const std::string& name);
  // Returns the tensor of an initializer or of a Constant node, or null.
  const onnx::TensorProto* FindTensor(const std::string& name);
  // Reads a tensor of the message, with its extracted or external data.
  absl::StatusOr<HostTensor> ReadStored(const onnx::TensorProto& proto);
  // Returns the new bytes of tensors with external data.
  const std::map<const onnx::TensorProto*, LazyTensor>& external() const { return external_; }
  // Returns the raw_data of SetExtracted, with replaced weights.
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
  std::vector<SplitNodes> split_nodes_;  // not in the model yet
  Counts counts_;
};

}  // namespace onnxtrain
