// What the reader makes of a file: plain structs without protobuf, checked, nodes in topological order.
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

#include "frontend/graph/attrs.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/mapped_file.h"

namespace onnxtrain {

struct ParsedGraph;

struct ParsedNode {
  std::string name, op_type, domain;          // domain "" for ai.onnx
  std::string source;                         // unique within the graph: the name, or made from op_type and position
  std::vector<std::string> inputs, outputs;   // "" where absent
  Attrs attrs;                                // a list of strings is one string with an entry per line
  std::map<std::string, std::shared_ptr<ParsedGraph>> graphs;  // attributes that hold a graph
  std::map<std::string, std::string> refs;    // attribute → attribute of the enclosing function
  std::map<std::string, std::vector<std::string>> strings;     // attributes that are lists of strings
  std::map<std::string, std::string> opaque;  // attributes that we have no type for, and what they hold
  std::vector<std::string> captured;          // names that its subgraphs read from outside
};

// Is it ai.onnx.preview.training.Gradient, which reads values by the names in its attributes?
bool AsksForGradient(const ParsedNode& node);

struct ParsedValue {
  std::string name;
  std::optional<DType> dtype;         // nothing where we have no such type: `kind` says what it is
  std::string kind;                   // "tensor of string", "sequence"
  ValueForm form;
  std::optional<DType> element;       // of a sequence or optional: the element type of its tensors
  bool has_shape = false;
  std::vector<int64_t> dims;          // -1 where free
  std::vector<std::string> dim_names;
};

struct ParsedGraph {
  std::string name;
  std::vector<ParsedNode> nodes;
  std::vector<ParsedValue> inputs, outputs;
  std::vector<std::string> initializer_order;
  std::unordered_map<std::string, HostTensor> initializers;  // share the model's bytes
  std::unordered_set<std::string> sparse;                    // those that are stored sparse: never trained
  std::unordered_map<std::string, std::string> opaque;       // initializers that we have no type for, and what they hold
};

struct ParsedFunction {
  ParsedGraph graph;                      // its inputs have names alone
  std::map<std::string, int64_t> opsets;  // of its body; empty: the model's
};

struct OnnxModel::Parsed {
  std::string path, producer;
  std::shared_future<std::string> sha256;  // worked out while the file is read
  ModelEdits edits;
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;
  ParsedGraph graph;
  std::map<std::pair<std::string, std::string>, ParsedFunction> functions;  // by domain and name
  std::vector<Input> inputs;
  std::vector<std::string> outputs;
  std::vector<std::shared_ptr<const MappedFile>> mapped;  // what large initializers look into
  std::vector<std::string> notes;                         // what the reader had to assume
  std::vector<ValueForm> output_forms;
};

// The names that a graph reads and does not define: a subgraph's free variables. `captured` must be filled in.
std::vector<std::string> FreeNames(const ParsedGraph& graph);

// Checks that every name is defined exactly once (an input, an initializer, a node, or for subgraphs an enclosing graph),
// puts the nodes into topological order (their own where it is one) and fills in `source` and `captured`, in subgraphs
// too. Errors name the node.
absl::Status CheckAndSort(ParsedGraph* graph);

// Functions may not call themselves, however indirectly.
absl::Status CheckFunctionCalls(const OnnxModel::Parsed& model);

// A user's name as it may stand in a message of one line: control characters become '?', long names are cut.
std::string Printable(std::string_view name);
// The same for a whole message.
std::string PrintableLine(std::string_view message);
absl::Status OneLine(const absl::Status& status);

}  // namespace onnxtrain
