// The parsed form of a model file: plain structs without protobuf, checked, with nodes in topological order.
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
#include "frontend/graph/attrs.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/read/mapped_file.h"
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
  std::shared_ptr<const FxNode> fx;           // null: the file does not say
};

// Whether the node lacks inputs that its operator must have, or outputs. The importer refuses such a node; whatever
// reads the parsed graph before takes it for one of an unknown operator, so that it may use these inputs and the first
// output.
bool LacksOperands(const ParsedNode& node);

// Returns the traits of the node's operator; default ones for an operator that is not in the table, and where operands
// are lacking.
const OnnxTraits& GetOnnxTraits(const ParsedNode& node);

// Whether the node is ai.onnx.preview.training.Gradient, which reads values by names in its attributes.
bool IsGradientNode(const ParsedNode& node);

inline constexpr std::string_view kTextKind = "tensor of string";

struct ParsedValue {
  std::string name;
  std::optional<DType> dtype;  // nothing for unsupported types; `kind` names them
  std::string kind;            // kTextKind, "sequence"
  ValueForm form;
  std::optional<DType> element;  // of a sequence or optional: the element type of its tensors
  bool has_shape = false;
  std::vector<int64_t> dims;  // -1 where free
  std::vector<std::string> dim_names;
};

struct ParsedGraph {
  std::string name;
  std::vector<ParsedNode> nodes;
  std::vector<ParsedValue> inputs, outputs;
  std::vector<std::string> initializer_order;
  std::unordered_map<std::string, HostTensor> initializers;  // share the model's bytes
  std::unordered_set<std::string> sparse;                    // names of those stored sparse, which are not trained
  std::unordered_map<std::string, std::string> opaque;       // initializers of unsupported types, with the type's name
  WeightOrigins origins;                                     // of the initializers of the model's graph
  WeightRecords records;                                     // how weights are stored, for the export and users
  std::unordered_map<std::string, std::vector<std::string>> strings;  // the values of those that are lists of strings
};

// The versions of an operator set that a file imports: one, but for files of some tools.
struct OpsetVersion {
  int64_t newest = 0;
  std::optional<int64_t> oldest = {};  // where there are several
};
using Opsets = std::map<std::string, OpsetVersion>;  // by domain, "" for ai.onnx

struct ParsedFunction {
  ParsedGraph graph;  // its inputs have only names
  Opsets opsets;      // of its body; empty: those of the model
};

struct OnnxModel::Parsed {
  std::string path, producer;
  std::shared_ptr<const MappedFile> memory;     // the bytes of LoadBytes, which `path` only names; null: a file
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
  std::shared_ptr<const std::vector<std::string>> texts;  // that inputs of strings are compared with
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
