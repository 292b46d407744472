// Defines the parsed form of a model file: checked plain structs without protobuf, with nodes in topological order.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/graph/graph.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/torch_export.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

struct ParsedGraph;

struct ParsedNode {
  std::string name, op_type, domain;         // domain "" for ai.onnx
  std::string source;                        // unique within the graph: the name, or op_type and position
  std::vector<std::string> inputs, outputs;  // "": absent
  Attrs attrs;                               // a list of strings is one string with a line per entry
  std::map<std::string, std::shared_ptr<ParsedGraph>> graphs;  // attributes that hold a graph
  std::map<std::string, std::string> refs;                     // attribute → attribute of the enclosing function
  std::map<std::string, std::vector<std::string>> strings;     // attributes that are lists of strings
  std::map<std::string, std::string> opaque;  // attributes of unsupported types, with the name of the type
  std::vector<std::string> captured;          // outer names that its subgraphs read
  std::shared_ptr<const FxNode> fx;           // null: the file has no such metadata
};

// Returns true if the node lacks required inputs, or any outputs. The importer refuses such a node; earlier readers of
// the parsed graph treat its operator as unknown, so that they may access the required inputs and the first output of
// known ones.
bool LacksOperands(const ParsedNode& node);

// Returns the traits of the node's operator; default traits for an operator that is not in the table, and for a node
// that lacks operands.
const OnnxTraits& GetOnnxTraits(const ParsedNode& node);

// Returns true if the node is ai.onnx.preview.training.Gradient, which reads values by names in its attributes.
bool IsGradientNode(const ParsedNode& node);

inline constexpr std::string_view kTextKind = "tensor of string";

struct ParsedValue {
  std::string name;
  std::optional<DType> dtype;  // nullopt for unsupported types, which `kind` names
  std::string kind;            // kTextKind, "sequence"
  ValueForm form;
  std::optional<DType> element;  // element type of the tensors of a sequence or optional
  bool has_shape = false;
  std::vector<int64_t> dims;  // -1: free
  std::vector<std::string> dim_names;
};

struct ParsedGraph {
  std::string name;
  std::vector<ParsedNode> nodes;
  std::vector<ParsedValue> inputs, outputs;
  std::vector<std::string> initializer_order;
  std::unordered_map<std::string, HostTensor> initializers;  // views of the model's bytes
  std::unordered_set<std::string> sparse;                    // names of sparse initializers, which are not trained
  std::unordered_map<std::string, std::string> opaque;       // initializers of unsupported types, with the name of the
                                                             // type
  WeightOrigins origins;                                     // of initializers; set for the top graph only
  WeightRecords records;                                     // how the file stores weights, for the export and for
                                                             // `inspect`
  std::unordered_map<std::string, std::vector<std::string>> strings;  // elements of values that are lists of strings
};

// The versions of an operator set that a file imports. Some tools write several.
struct OpsetVersion {
  int64_t newest = 0;
  std::optional<int64_t> oldest = {};  // set if there are several
};
using Opsets = std::map<std::string, OpsetVersion>;  // by domain, "" for ai.onnx

struct ParsedFunction {
  ParsedGraph graph;  // inputs have names but no types
  Opsets opsets;      // of the body; empty: the model's
};

struct OnnxModel::Parsed {
  std::string path, producer;
  std::shared_ptr<const MappedFile> memory;     // the bytes of LoadBytes; null: the model is a file
  std::map<std::string, std::string> metadata;  // of the model
  std::shared_future<std::string> sha256;       // computed while the file is read
  ModelEdits edits;
  int64_t ir_version = 0;
  Opsets opsets;
  ParsedGraph graph;
  std::map<std::pair<std::string, std::string>, ParsedFunction> functions;  // by domain and name
  std::vector<Input> inputs;
  std::vector<std::string> outputs;
  std::vector<std::shared_ptr<const MappedFile>> mapped;  // the files that large initializers are views of
  std::shared_ptr<const std::vector<std::string>> texts;  // the strings that inputs are compared with
  std::vector<std::string> notes;                         // assumptions of the reader
  std::vector<ValueForm> output_forms;
};

// Reads a mapped model file into *model, whose path and edits are set; applies the edits. Errors do not name the file.
absl::Status ReadModel(const std::shared_ptr<const MappedFile>& file, OnnxModel::Parsed* model);

// Returns the names that a graph reads but does not define: the free variables of a subgraph. `captured` must be set.
std::vector<std::string> FreeNames(const ParsedGraph& graph);

// Checks that every name is defined exactly once, by an input, initializer, node or, in subgraphs, an enclosing graph.
// Sorts the nodes topologically (stable for sorted files) and sets `source` and `captured`, in subgraphs too. Errors
// name the node.
absl::Status CheckAndSort(ParsedGraph* graph);

// Checks that no function calls itself, directly or indirectly.
absl::Status CheckFunctionCalls(const OnnxModel::Parsed& model);

}  // namespace onnxtrain
