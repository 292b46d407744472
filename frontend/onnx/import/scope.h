// Holds the nodes that an import needs, the values of the names in its scopes, and its errors.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// Indexes the live nodes of a graph by the names that they read and define. Holds pointers to nodes, so the graph must
// outlive it.
class LiveGraph {
 public:
  // `graph` is sorted. `outputs` are names of values; unknown ones are ignored.
  LiveGraph(const ParsedGraph& graph, const std::vector<std::string>& outputs);

  bool Contains(const ParsedNode& node) const { return nodes_.count(&node) > 0; }
  // Returns true if a live node or an output reads the name.
  bool IsRead(const std::string& name) const { return names_.count(name) > 0; }
  // Returns the live nodes that read the name, directly or in their subgraphs, in topological order.
  const std::vector<const ParsedNode*>& Users(const std::string& name) const;
  // Returns the live node that defines the name, or null.
  const ParsedNode* Producer(const std::string& name) const;

 private:
  void AddNode(const ParsedNode& node);

  std::unordered_set<const ParsedNode*> nodes_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, std::vector<const ParsedNode*>> users_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
};

// Collects the errors of an import and reports them as one.

class ErrorList {
 public:
  // `extents` as in NodeFailure.
  void Add(const ParsedNode& node, const absl::Status& status, std::vector<int64_t> extents = {});
  size_t size() const { return failures_.size(); }
  // Returns OK, or one status with the code of the first error, the messages of the first 20, and all failures as a
  // payload.
  absl::Status Summary() const;

 private:
  std::vector<NodeFailure> failures_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
};

// Returns the status of a node that fails because of another failure, which has been reported.
absl::Status AlreadyReported();

// A sequence or an optional. Exists only during the import; the graph has its elements.
struct ListValue {
  ValueForm form;
  bool present = true;        // false: an empty optional
  std::vector<Val> elements;  // of the sequence; one element for an optional tensor that is present
};

// A tensor, a list, or neither (an omitted input).
struct ImportValue {
  ImportValue() = default;
  // NOLINTBEGIN(google-explicit-constructor): import functions return either.
  ImportValue(Val v) : tensor(v) {}
  ImportValue(ListValue v) : list(std::make_shared<const ListValue>(std::move(v))) {}
  // NOLINTEND(google-explicit-constructor)

  bool valid() const { return tensor.valid() || list != nullptr; }

  Val tensor;
  std::shared_ptr<const ListValue> list;
};

using ImportValues = std::vector<ImportValue>;
using ImportValuesOr = absl::StatusOr<ImportValues>;

// Returns the tensor of a value; fails if it is a list or absent, with a message that begins with `what`.
absl::StatusOr<Val> RequireTensor(const ImportValue& value, std::string_view what);

// The names that are visible to a list of nodes: those of its graph, then those of the enclosing scopes.
struct ImportScope {
  const ParsedGraph* graph = nullptr;
  ImportScope* parent = nullptr;  // of a subgraph; null for a function, which sees no outer names
  const Opsets* opsets = nullptr;
  const Attrs* call = nullptr;  // attributes of the calling node, in a function
  bool conditional = false;     // within a branch that may not be taken at run time
  std::string prefix;           // "call/"; prefix of node sources and value names in a function or body
  std::unordered_map<std::string, ImportValue> values;  // invalid: the producer failed and was reported

  // Returns true for the model's top graph.
  bool is_top() const { return parent == nullptr && call == nullptr; }
};

// Returns the node's attributes, with references to attributes of the enclosing function replaced by the caller's
// values.
absl::StatusOr<Attrs> ResolveAttrs(const ImportScope& scope, const ParsedNode& node);

}  // namespace onnxtrain
