// Indexes a parsed model for the rows of the table of parametrizations, recognizes inputs that are weights, plans the
// copies that readers of merged initializers get, and compares tensors by their bytes.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/torch_export.h"
#include "frontend/onnx/recover/weight_origin.h"

namespace onnxtrain {

// Returns true if all elements are equal, which may be chance: fresh scales are ones, fresh biases zeros.
bool IsSplat(const HostTensor& tensor);

// Returns true if the tensor has floating-point numbers along one axis at most.
bool IsVector(const HostTensor& tensor);

// Returns true if the tensor is the bias of a fresh LSTM: 1 in one quarter, the forget gate, and 0 elsewhere.
bool IsForgetBias(const HostTensor& tensor);

// Returns true if the rows are log 1, log 2, log 3 …: decay rates of a fresh state space (Gu and Dao, "Mamba", 2023).
bool IsFreshDecay(const HostTensor& tensor);

// Returns true if the tensor may equal other weights because nothing has trained them.
bool IsFresh(const HostTensor& tensor);

// Returns true if the tensor is a list of at least 4 equally spaced numbers or of powers: frequencies, slopes, a grid.
bool IsProgression(const HostTensor& tensor);

// Returns the sum of the tensor's bytes, which is equal for tensors that are transposes of each other.
uint64_t SumOfBytes(const HostTensor& tensor);

// Returns true if the tensor is a square matrix, or a batch of them, with at least 3 rows, that neither an initializer
// nor training produces: equal to its transpose but not diagonal, or without negative numbers and with rows or columns
// that sum to 1 (or 0). Such matrices are adjacency matrices of graph networks and blur kernels.
bool IsGraphMatrix(const HostTensor& tensor);

// Returns true if one tensor is the transpose of the other in the last two axes.
bool IsTransposeOf(const HostTensor& a, const HostTensor& b);

// Returns the shape with its last two axes exchanged.
Shape TransposedShape(Shape shape);

// An initializer that the exporter computed from parameters and that is trained as a separate value.
struct FoldedWeight {
  std::string name;
  std::vector<std::string> parameters;  // by their names in the module
};

// The origins of the initializers of a file, from the metadata of torch.export.
struct TorchNaming {
  std::vector<WeightRecord> origins;   // origins of initializers
  std::vector<WeightRecord> splits;    // weights that the exporter merged
  std::vector<WeightRecord> restored;  // biases that it removed
  std::vector<std::string> missing;    // parameters that no initializer holds, because they were folded into others
  std::vector<std::string> unread;     // parameters that the file neither stores nor reads
  std::vector<FoldedWeight> folded;
  std::vector<std::string> looked_up;  // initializers computed from parameters and further values
  std::vector<std::pair<std::string, ParameterFunction>> functions;  // initializers computed from one parameter each
};

// Returns a node for a row to add; `kind` names the row in the node's name, which is for messages.
ParsedNode MakeRowNode(std::string_view kind, std::string op, std::vector<std::string> inputs,
                       const std::string& output, Attrs attrs = {});

// Indexes the model's graph by the names of its values, and collects the nodes that rows add and remove. Pointers to
// nodes are valid until Refresh.
class WeightIndex {
 public:
  // Both must outlive the index.
  WeightIndex(const TorchMetadata& metadata, OnnxModel::Parsed* model);

  const TorchMetadata& metadata() const { return metadata_; }
  const OnnxModel::Parsed& model() const { return model_; }
  const ParsedGraph& graph() const { return model_.graph; }
  ParsedGraph& mutable_graph() { return model_.graph; }
  // Records an assumption that is reported to users.
  void AddNote(std::string note) { model_.notes.push_back(std::move(note)); }

  // Returns the node that produces a value, or null.
  ParsedNode* Producer(const std::string& name) const;
  // Returns the inputs that read a value, in the order of the nodes.
  const std::vector<WeightReader>& Readers(const std::string& name) const;
  // Returns the readers without nodes that read only the shape.
  const std::vector<WeightReader>& ElementReaders(const std::string& name) const;
  bool IsOutput(const std::string& name) const { return outputs_.contains(name); }
  // Returns true if the graph has an input, an initializer or a node's output of that name.
  bool IsNameTaken(const std::string& name) const;
  // Returns the tensor of an initializer, or null.
  const HostTensor* FindTensor(const std::string& name) const;
  const WeightOrigin& Origin(const std::string& name) const;
  WeightOrigin::Kind Kind(const std::string& name) const { return Origin(name).kind; }
  // Returns the initializers in the order of the file, then those that rows have added.
  std::vector<std::string> ListInitializers() const;
  // Returns the outputs of Identity nodes over initializers, with the initializers, sorted by output.
  std::vector<std::pair<std::string, std::string>> ListCopies() const;
  // Returns SumOfBytes of an initializer, computed once.
  uint64_t SumOfBytes(const std::string& name);

  // Returns a record that assigns another kind to the weight.
  WeightRecord MakeKind(const std::string& weight, WeightOrigin::Kind kind, std::string why) const;

  // Refresh inserts these nodes before all others, in this order.
  std::vector<ParsedNode> nodes;
  // Refresh inserts these copies after the nodes at the positions.
  std::unordered_map<size_t, std::vector<ParsedNode>> copies;
  // Finish inserts these nodes before all others: they compute initializers that the file stores twice.
  std::vector<ParsedNode> tie_nodes;
  // Refresh removes the nodes with these first outputs.
  std::unordered_set<std::string> removed;
  TorchNaming naming;

  // Applies the changes and indexes the graph again.
  void Refresh();
  // Applies the last changes, after all rows.
  void Finish();

 private:
  void InsertFirst(std::vector<ParsedNode>* nodes);
  void InsertCopies();

  const TorchMetadata& metadata_;
  OnnxModel::Parsed& model_;
  std::unordered_map<std::string, ParsedNode*> producers_;
  std::unordered_map<std::string, std::vector<WeightReader>> readers_;
  std::unordered_map<std::string, std::vector<WeightReader>> element_readers_;  // if they differ from readers_
  std::unordered_set<std::string> inputs_, outputs_;                            // inputs and outputs of the model
  std::unordered_map<std::string, uint64_t> sums_;
};

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

  // Adds a copy for these readers, with the name `split.name` or, if that is taken, a similar one. Returns its name.
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
