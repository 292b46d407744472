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

// A low-rank update beside the products with a weight: y = x·W + scale·(d(x)·Aᵀ)·Bᵀ with dropout d, as in LoRA (Hu et
// al., arXiv:2106.09685). Convolutions have A as a convolution to `rank` channels and B as one of 1×1. Names are of the
// graph.
struct LowRankUpdate {
  std::vector<std::string> nodes;  // the products, by their first outputs: all readers of the weight
  std::string weight;              // [outputs, inputs] or [inputs, outputs]; [outputs, inputs, kernel…]
  bool outputs_first = false;
  // The outputs of the weight that come before and after those of the update: queries, keys and values may share one.
  int64_t outputs_before = 0, outputs_after = 0;
  std::string module;  // names A and B
  double scale = 1;
  double dropout = 0;  // of x in training
  HostTensor a, b;     // initial values [rank, inputs(, kernel…)], [outputs, rank(, 1…)], in the element type of x
  // PiSSA (Meng et al., arXiv:2404.02948): A and B begin with the largest singular values of W. These copies stay, and
  // their product is subtracted. Empty: nothing is.
  HostTensor first_a, first_b;
  // DoRA (Liu et al., arXiv:2402.09353): the initial length of each output's row of W + scale·B·A, which is trained
  // apart from its direction, [outputs] or [1, outputs, 1…]. Empty: lengths are those of the sum.
  HostTensor magnitude;
  HostTensor frozen;  // the weight; shares the bytes of the graph's

  std::string a_name() const { return module + ".lora_A.weight"; }
  std::string b_name() const { return module + ".lora_B.weight"; }
  std::string magnitude_name() const { return module + ".lora_magnitude_vector.weight"; }
  int64_t rank() const { return a.shape()[0]; }
  int64_t whole_rank() const { return has_first() ? 2 * rank() : rank(); }  // of what is added to W
  bool has_first() const { return !first_a.shape().empty(); }
  bool has_magnitude() const { return !magnitude.shape().empty(); }
  bool is_part() const { return outputs_before > 0 || outputs_after > 0; }
  // The trained tensors: names in the graph and initial values.
  std::vector<std::pair<std::string, HostTensor>> Trained() const {
    std::vector<std::pair<std::string, HostTensor>> trained = {{a_name(), a}, {b_name(), b}};
    if (has_magnitude()) trained.emplace_back(magnitude_name(), magnitude);
    return trained;
  }
};

// The updates of one weight: one of all outputs, or several of a part each.
using LowRankUpdates = std::vector<LowRankUpdate>;

struct Parametrization;

// The finding of one row of the table (parametrizations.h) about a tensor of the file.
struct WeightRecord {
  using Form = std::variant<WeightOrigin, SplitNodes, SplitWeight, MergedCopy, NamedNode, MarkedNodes, AddedInput,
                            WeightTie, RowCopies, ComputedFunction, JoinedWeight, QuantizedForm, LowRankUpdates>;
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
