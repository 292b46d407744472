// Names and what they stand for while a graph is imported.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/onnx/import_failures.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// The errors of an import: all of them are collected, then reported as one.

class ErrorList {
 public:
  // `extents` as in NodeFailure.
  void Add(const ParsedNode& node, const absl::Status& status, std::vector<int64_t> extents = {});
  size_t size() const { return failures_.size(); }
  // OK, or one status with the code of the first error, the messages of the first 20, and the failures of all.
  absl::Status Summary() const;

 private:
  std::vector<NodeFailure> failures_;
  absl::StatusCode code_ = absl::StatusCode::kOk;
};

// The status of a node that fails because another one has failed and was reported.
absl::Status AlreadyReported();

// A sequence or an optional. Only the importer knows them: at run time there are only their elements.
struct ListValue {
  ValueForm form;
  bool present = true;        // false: an empty optional
  std::vector<Val> elements;  // of the sequence; one for an optional tensor that is present
};

// A tensor, a list, or neither: an absent optional input.
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

// The tensor that a value is; an error that begins with `what` where it is a list or absent.
absl::StatusOr<Val> RequireTensor(const ImportValue& value, std::string_view what);

// The names that a list of nodes sees: its own, then those of the enclosing scopes.
struct ImportScope {
  const ParsedGraph* graph = nullptr;
  ImportScope* parent = nullptr;  // of a subgraph; a function sees nothing outside itself
  const Opsets* opsets = nullptr;
  const Attrs* call = nullptr;  // in a function: the calling node's attributes
  bool conditional = false;     // within a branch that may not be taken at run time
  std::string prefix;           // of node sources and value names within a function or body: "call/"
  std::unordered_map<std::string, ImportValue> values;  // an invalid value: its node failed and has been reported

  // Whether this is the model's own graph.
  bool is_top() const { return parent == nullptr && call == nullptr; }
};

// The node's attributes, those that refer to attributes of the enclosing function replaced by the caller's values.
absl::StatusOr<Attrs> ResolveAttrs(const ImportScope& scope, const ParsedNode& node);

}  // namespace onnxtrain
