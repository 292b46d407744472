// Records where the initializers of a file come from, and in which form they store weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
struct StoredBlocks;  // frontend/ops/quantize_blocks.h

struct WeightOrigin {
  enum class Kind : uint8_t {
    kUnknown,    // the file does not say
    kParameter,  // also values that constant folding computed from one
    kBuffer,
    kConstant,      // a constant of the program, or one that the exporter derived
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

// A WeightReader in terms of the file: names the node by one of its outputs.
struct FileReader {
  std::string node;
  size_t input = 0;
};

// A weight that the exporter merged into another initializer because their bytes were equal. The graph reads it by a
// separate name, which the file does not contain.
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

// An initializer whose rows are copies of the rows of a weight [rows, length]: the exporter gathered them from a table
// at constant indices.
struct RowCopies {
  std::string weight, copy;
  std::vector<int64_t> shape;  // shape of the copy
  size_t axis = 0;             // the axis of the copy that its rows extend along
  std::vector<int64_t> rows;   // rows of the weight, by position on the other axes, in row-major order
};

// Nodes of the file that represent nodes of several modules. The graph has copies of them, which the readers read.
struct SplitNodes {
  std::vector<std::pair<std::string, std::string>> outputs;  // pairs of an output of the file and its copy
  std::vector<FileReader> readers;                           // readers of the last copy, or of the copy of its operand
  std::shared_ptr<const FxNode> fx;                          // the fx node of the copies
};

enum class ParameterFunction : uint8_t { kExp, kNegatedExp, kSigmoid, kTanh, kSoftplus };

// An initializer that the exporter computed from one weight.
struct ComputedFunction {
  std::string weight, value;
  ParameterFunction function = ParameterFunction::kExp;
};

// An initializer that the exporter concatenated from parts: separate weights, transposes of others, zeros.
struct JoinedWeight {
  struct Part {
    enum class Form : uint8_t { kOwn, kTransposed, kZeros };
    Form form = Form::kOwn;
    int64_t extent = 0;  // extent along the first axis of the value
    std::string weight;
  };
  std::string value;
  std::vector<Part> parts;
};

// Integers that represent a float weight, and their encoding: names in the file, "" if the operator has none.
struct QuantizedForm {
  const QuantizedWeight* row = nullptr;
  Attrs attrs;  // attributes of the node
  std::string scale, factor, zero;
};

// A copy that an Identity makes of a weight. Its readers read the weight itself.
struct MergedCopy {
  std::string weight, copy;
};

// The fx node of a node, which is identified by its first output.
struct NamedNode {
  std::string node;
  std::shared_ptr<const FxNode> fx;
};

// An attribute that tells the import how nodes read a weight. Nodes are identified by their first outputs.
struct MarkedNodes {
  std::string attribute;
  std::vector<std::pair<std::string, int64_t>> values;
};

// A weight that is added as an input of a node, which is identified by its first output.
struct AddedInput {
  std::string node;
  size_t input = 0;
};

// Initializers that change with a quantized weight into which updates are merged; "": others read it, and it stays.
struct RequantizedSum {
  std::string scale, zero;
};

// A low-rank update of the products with a weight: y = x·W + scale·(d(x)·Aᵀ)·Bᵀ with dropout d, as in LoRA (Hu et al.,
// arXiv:2106.09685). For convolutions, A is a convolution to `rank` channels and B a 1×1 convolution. Names are those
// of the graph.
struct LowRankUpdate {
  std::vector<std::string> nodes;  // the products, by their first outputs: all readers of the weight
  std::string weight;              // [outputs, inputs] or [inputs, outputs]; [outputs, inputs, kernel…]
  bool outputs_first = false;
  // The outputs of the weight that come before and after those of the update: queries, keys and values may share one.
  int64_t outputs_before = 0, outputs_after = 0;
  // The number of matrices of a weight [experts, …, …], from which the products select; 0: the weight is one matrix.
  // Rows of A are grouped by expert, columns of B by rank: [experts·rank, inputs], [outputs, rank·experts].
  int64_t experts = 0;
  bool of_parameter = false;  // PEFT addresses the weight as a parameter, not by its module
  std::string module;         // names A and B
  double scale = 1;
  double dropout = 0;  // dropout of x in training
  HostTensor a, b;     // initial values [rank, inputs(, kernel…)], [outputs, rank(, 1…)], in the element type of x
  // PiSSA (Meng et al., arXiv:2404.02948): A and B start from the largest singular values of W. The product of these
  // constant copies is subtracted. Empty without PiSSA.
  HostTensor first_a, first_b;
  // DoRA (Liu et al., arXiv:2402.09353): the initial length of each output's row of W + scale·B·A, which is trained
  // separately from its direction, [outputs] or [1, outputs, 1…]. Empty without DoRA.
  HostTensor magnitude;
  HostTensor frozen;  // the weight, sharing the bytes of the graph's tensor
  // The numbers that the products read, if magnitudes or `sum` need them; null: they read `frozen`, or nothing does.
  std::shared_ptr<const StoredBlocks> blocks;
  std::optional<RequantizedSum> sum;  // quantized weights: the export writes the sum, not nodes beside the weight

  std::string a_name() const { return module + ".lora_A.weight"; }
  std::string b_name() const { return module + ".lora_B.weight"; }
  std::string magnitude_name() const { return module + ".lora_magnitude_vector.weight"; }
  std::string factor_name() const { return module + ".lora_factor"; }  // in a written model, [outputs of the weight]
  // The name of the weight in the exported module.
  std::string parameter() const { return experts > 0 ? module : module + ".weight"; }
  int64_t rank() const { return experts > 0 ? a.shape()[0] / experts : a.shape()[0]; }
  int64_t whole_rank() const { return has_first() ? 2 * rank() : rank(); }  // rank of the sum that is added to W
  bool has_first() const { return !first_a.shape().empty(); }
  bool has_magnitude() const { return !magnitude.shape().empty(); }
  bool is_part() const { return outputs_before > 0 || outputs_after > 0; }
  // Returns the names in the graph and the initial values of the trained tensors.
  std::vector<std::pair<std::string, HostTensor>> Trained() const {
    std::vector<std::pair<std::string, HostTensor>> trained = {{a_name(), a}, {b_name(), b}};
    if (has_magnitude()) trained.emplace_back(magnitude_name(), magnitude);
    return trained;
  }
};

// The updates of one weight: one for all outputs, or one for each of several parts of the outputs.
using LowRankUpdates = std::vector<LowRankUpdate>;

struct Parametrization;

// The finding of one row of the table (parametrizations.h) about a tensor of the file.
struct WeightRecord {
  using Form = std::variant<WeightOrigin, SplitNodes, SplitWeight, MergedCopy, NamedNode, MarkedNodes, AddedInput,
                            WeightTie, RowCopies, ComputedFunction, JoinedWeight, QuantizedForm, LowRankUpdates>;
  std::string weight;  // the trained or fixed tensor of the graph
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
