// Import of ONNX nodes into canonical operators. The importer (frontend/onnx) passes each node as a NodeView. Only the
// import functions, grouped by the same families as the rows, know opset versions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// A view of one ONNX node, without attributes that hold graphs.
struct NodeView {
  std::string_view domain;  // "" for ai.onnx
  std::string_view op_type;
  std::string_view name;                                    // may be empty
  int version = 0;                                          // opset version of the domain
  std::optional<int> older_version = {};                    // an older one that the file imports, too
  std::vector<Val> inputs;                                  // invalid where the input name is empty
  int num_outputs = 1;                                      // how many outputs the node lists
  std::vector<bool> used;                                   // per listed output: is it read?
  std::map<std::string, std::vector<std::string>> strings;  // attributes that are lists of strings
  Attrs attrs;  // ints→int64, floats→double; tensors as HostTensor. "to"/"dtype" keep ONNX's numbers
};

// The node and the services of the importer, for an import function.
class ImportContext {
 public:
  virtual ~ImportContext() = default;

  const NodeView& node() const { return *node_; }
  Builder& b() const { return *b_; }
  const Attrs& attrs() const { return node_->attrs; }
  size_t num_inputs() const { return node_->inputs.size(); }
  bool has(size_t i) const { return i < node_->inputs.size() && node_->inputs[i].valid(); }
  Val in(size_t i) const { return i < node_->inputs.size() ? node_->inputs[i] : Val(); }

  // Returns what holds for the node: `newer` from opset `version` on, else `older`.
  template <typename T>
  T since(int version, T newer, T older) const {
    const bool other = node_->older_version.has_value() && *node_->older_version < version;
    opset_matters_ |= other && node_->version >= version && newer != older;
    return node_->version >= version ? newer : older;
  }
  // Whether the node has another meaning in another opset that the file imports.
  bool opset_matters() const { return opset_matters_; }

  // Returns `training`. Operators whose import reads it have another graph in training than in inference.
  bool for_training() const {
    mode_matters_ = true;
    return training;
  }
  bool mode_matters() const { return mode_matters_; }

  // Returns the value of input i if it is known at import: a constant, or a weight that this use then does not train.
  // Null if it is computed from fed data.
  virtual const HostTensor* Known(size_t i) = 0;
  // The same as a list of integers or doubles; an error that names the input if it is not known.
  absl::StatusOr<std::vector<int64_t>> KnownInts(size_t i, std::string_view what);
  absl::StatusOr<std::vector<double>> KnownDoubles(size_t i, std::string_view what);
  // Reads the attribute `name` or, in later versions of an operator, input i; `otherwise` if neither is given.
  absl::StatusOr<std::vector<int64_t>> IntsFromAttrOrInput(std::string_view name, size_t i,
                                                           std::vector<int64_t> otherwise);

  // Makes a trainable weight of a list of floats in an attribute (ai.onnx.ml), with the numbers `tensor`. The exporter
  // writes it back there. Returns a constant by default.
  virtual Val AttributeWeight(std::string_view attribute, HostTensor tensor) { return b().Constant(std::move(tensor)); }
  // Registers that `prediction` is the softmax of `logits`, up to a factor per sample: losses use the logits. Accepts
  // invalid Vals; FindLogits accepts unknown predictions.
  virtual void SetLogits(Val prediction, Val logits) {}
  virtual Val FindLogits(Val prediction) { return Val(); }

  // Replaces input i, integers with the real value `value`, by a float weight that starts as `value` and that the
  // exporter quantizes again. Returns an invalid Val if input i is no initializer or already has another real value.
  virtual Val AsFloatWeight(size_t, const HostTensor&) { return Val(); }
  // Turns input i, which must be a weight, into state that the training step updates (BatchNorm statistics).
  virtual absl::StatusOr<Val> AsState(size_t i) = 0;
  // Registers that running the model in training mode replaces `state` by `value`, which is momentum·state
  // and what does not depend on it.
  virtual void UpdateState(Val state, Val value, double momentum) = 0;

  // Import options.
  bool training = false;               // Dropout active, BatchNorm on batch statistics; read it by for_training()
  bool batch_norm_frozen = false;      // BatchNorm keeps its running statistics even in training
  double dropout = -1;                 // ratio for every Dropout node; < 0: the node's own
  DType float_type = DType::kFloat32;  // what float32 becomes
  bool conformance = false;            // follow ONNX to the letter (population variance in running statistics)
  virtual Val RandomKey() = 0;         // u32[4], fed: (seed, attempted step, micro index, rank); ops/README.md
  virtual int64_t RandomStream() = 0;  // a number that is a function of the node's source name alone

 protected:
  const NodeView* node_ = nullptr;
  Builder* b_ = nullptr;

 private:
  mutable bool opset_matters_ = false, mode_matters_ = false;
};

// What the importer and model surgery (frontend/onnx) ask of an operator besides its import.
// An attribute that lists strings, and the one that lists their places in their stead
// (frontend/onnx/read/read.cc).
struct TextAttr {
  std::string_view texts, places;
};

struct OnnxTraits {
  bool view = false;               // the elements of input 0 in another shape or order
  bool moves = false;              // elements of its inputs at other places: joined, selected or repeated
  bool probabilities = false;      // the output holds probabilities or their logarithms
  bool keeps_classes = false;      // treats each class by itself, for any number of classes; so do views, probabilities
  bool keeps_channels = false;     // the same for channels: activations, pooling
  bool classifier = false;         // a product whose output channels can be classes
  bool time_major = false;         // time is axis 0 of input 0, and the batch axis 1
  bool scores = false;             // attention scores pass it on the way to their softmax; so do views
  bool scalar_weight = false;      // a number at its inputs is a factor, a term or an argument: it may be a parameter
  bool takes_numbers = false;      // a weight of one element at its inputs is a number of the formula: ε, a bound
  uint32_t weight_inputs = 0;      // bit i: input i may be a trained weight
  uint32_t discrete_outputs = 0;   // bit i: output i holds indices or choices; operators whose row has no gradient, too
  uint32_t scores_input = 0;       // the input that these are chosen by
  uint32_t reversed_inputs = 0;    // bit i: a choice by input i is of the smallest: ArgMin, Less, Not
  std::string_view largest_attr;   // the attribute that is 0 where a choice is of the smallest
  bool keeps_choice = false;       // of an input that is a choice, the same or the opposite one; so do views and moves
  bool extreme = false;            // the output holds the largest or, if inputs are reversed, smallest elements
  bool shape_from_values = false;  // the shape of its outputs depends on the values of its inputs
  uint32_t extents_input = 0;      // the input that holds the extents of the output, the batch in front; 0: none
  std::string_view type_attr;      // the attribute that holds the element type of the output
  bool type_defaults_to_float = false;
  TextAttr text_keys = {};    // strings that input 0 is looked up among
  TextAttr text_values = {};  // strings that the output then has; where the node has none, it has numbers
};

// The import function returns one Val per listed output (further or unused ones may be invalid), or what is wrong
// (without tag). The importer has checked the arity, and nothing else.
struct OnnxOp {
  std::string_view domain;  // "" for ai.onnx
  std::string_view op_type;
  int min_inputs = 1, max_inputs = 1;
  ImportFn import = nullptr;
  OnnxTraits traits = {};
};

// Returns null for an unknown operator.
const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view op_type);
std::vector<const OnnxOp*> AllOnnxOps();

// Converts ONNX's TensorProto.DataType numbers; nothing (0) for unsupported types.
std::optional<DType> DTypeFromOnnx(int64_t onnx_type);
int64_t DTypeToOnnx(DType dtype);

// The families, each defined in the .cc file of its name. A line here declares and registers one; operators that are
// imported as they are, without traits of their own, are listed by their rows (OpRow::onnx).
#define ONNXTRAIN_IMPORT_FAMILIES                                                                                 \
  ElementwiseImports(), ReduceImports(), MatmulImports(), ConvImports(), PoolImports(), ResampleImports(),        \
      SampleImports(), GeometryImports(), NormImports(), SoftmaxImports(), AttentionImports(), ShapeImports(),    \
      IndexImports(), ScatterImports(), SelectionImports(), BitwiseImports(), SignalImports(), TrainingImports(), \
      MlImports(), TfIdfImports(), RandomImports(), LossImports(), RecurrentImports(), QuantizeImports()
std::span<const OnnxOp> ONNXTRAIN_IMPORT_FAMILIES;

}  // namespace onnxtrain
