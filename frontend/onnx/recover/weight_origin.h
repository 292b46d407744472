// Origins of the initializers of a file: parameters, buffers and constants of the exported program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

struct FxNode;
struct ParsedNode;
struct QuantizedWeight;

struct WeightOrigin {
  enum class Kind : uint8_t {
    kUnknown,    // the file does not say
    kParameter,  // also what constant folding made of one
    kBuffer,
    kConstant,      // of the program, or one that the exporter derived
    kStandardizer,  // shifts or scales the inputs of the model
  };
  Kind kind = Kind::kUnknown;
  std::string module_name;  // "encoder.layers.0.norm1.weight"; "": not known
};
using WeightOrigins = std::unordered_map<std::string, WeightOrigin>;  // by initializer

// An input of a node that reads an initializer.
struct WeightReader {
  ParsedNode* node = nullptr;
  size_t input = 0;
};

// The same in terms of the file: by an output of the node.
struct FileReader {
  std::string node;
  size_t input = 0;
};

// A weight that the exporter merged into another initializer, because their bytes were equal. The graph reads it by a
// name of its own; the file does not.
struct SplitWeight {
  std::string name, merged;  // merged "": zeros that the file does not hold
  std::vector<FileReader> readers;
  WeightOrigin origin;
};

// Two initializers that are trained as one weight.
struct WeightTie {
  enum class Form : uint8_t { kEqual, kTransposed, kComplement };  // kComplement: 1 − weight
  std::string weight, copy;
  Form form = Form::kEqual;
};

// An initializer whose rows are copies of the rows of a weight [rows, length]: the exporter looked constant indices up
// in a table.
struct RowCopies {
  std::string weight, copy;
  std::vector<int64_t> shape;  // of the copy
  size_t axis = 0;             // of the copy, along which its rows lie
  std::vector<int64_t> rows;   // of the weight, by position on the other axes, in row-major order
};

// Nodes of the file that stand for those of several modules. The graph has copies of them, which the readers read.
struct SplitNodes {
  std::vector<std::pair<std::string, std::string>> outputs;  // of the file's nodes and of their copies, in order
  std::vector<FileReader> readers;                           // of the last copy, or of the copy of what they read
  std::shared_ptr<const FxNode> fx;                          // that the copies stand for
};

enum class ParameterFunction : uint8_t { kExp, kNegatedExp, kSigmoid, kTanh, kSoftplus };

// An initializer that the exporter computed of one weight.
struct ComputedFunction {
  std::string weight, value;
  ParameterFunction function = ParameterFunction::kExp;
};

// An initializer that the exporter concatenated of parts: weights of their own, transposes of others, zeros.
struct JoinedWeight {
  struct Part {
    enum class Form : uint8_t { kOwn, kTransposed, kZeros };
    Form form = Form::kOwn;
    int64_t extent = 0;  // along the first axis of the value
    std::string weight;
  };
  std::string value;
  std::vector<Part> parts;
};

// Integers that stand for a float weight, and what says how: names in the file, "" where the operator has none.
struct QuantizedForm {
  const QuantizedWeight* row = nullptr;
  Attrs attrs;  // of the node
  std::string scale, factor, zero;
};

// A copy of a weight behind an Identity, which reads as the weight itself.
struct MergedCopy {
  std::string weight, copy;
};

// The fx node that a node, by its first output, stands for.
struct NamedNode {
  std::string node;
  std::shared_ptr<const FxNode> fx;
};

// An attribute that tells the import how nodes, by their first outputs, read a weight.
struct MarkedNodes {
  std::string attribute;
  std::vector<std::pair<std::string, int64_t>> values;
};

// A weight that a node, by its first output, also reads.
struct AddedInput {
  std::string node;
  size_t input = 0;
};

// A low-rank update beside the products with a weight: y = x·W + scale·(x·Aᵀ)·Bᵀ, A [rank, inputs], B [outputs, rank],
// as in LoRA (Hu et al., arXiv:2106.09685). Names are of the graph.
struct LowRankUpdate {
  std::vector<std::string> nodes;  // the products, by their first outputs: all readers of the weight
  std::string weight;              // [outputs, inputs] or [inputs, outputs]
  bool outputs_first = false;
  std::string module;  // names A and B
  double scale = 1;
  HostTensor a, b;    // initial values, in the element type of x
  HostTensor frozen;  // the weight; shares the bytes of the graph's

  std::string a_name() const { return module + ".lora_A.weight"; }
  std::string b_name() const { return module + ".lora_B.weight"; }
  int64_t rank() const { return a.shape()[0]; }
};

struct Parametrization;

// The finding of one row of the table (parametrizations.h) about a tensor of the file.
struct WeightRecord {
  using Form = std::variant<WeightOrigin, SplitNodes, SplitWeight, MergedCopy, NamedNode, MarkedNodes, AddedInput,
                            WeightTie, RowCopies, ComputedFunction, JoinedWeight, QuantizedForm, LowRankUpdate>;
  std::string weight;  // of the graph: the trained tensor, or the fixed one
  std::string why;     // a phrase for users
  Form form;
  const Parametrization* row = nullptr;
};
using WeightRecords = std::vector<WeightRecord>;  // in the order in which the rows were applied

// Returns the forms of one kind among the records, in their order.
template <typename Form>
std::vector<const Form*> ListForms(const WeightRecords& records) {
  std::vector<const Form*> forms;
  for (const WeightRecord& record : records) {
    if (const Form* form = std::get_if<Form>(&record.form)) forms.push_back(form);
  }
  return forms;
}

}  // namespace onnxtrain
