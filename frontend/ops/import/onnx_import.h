// Converts ONNX nodes to canonical operators. The importer (frontend/onnx) passes each node as a NodeView. Only import
// functions, which are grouped into the same families as the rows, know opset versions.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// A view of one ONNX node, without attributes that hold graphs.
struct NodeView {
  std::string_view domain;  // "" for ai.onnx
  std::string_view op_type;
  std::string_view name;                                    // may be empty
  int version = 0;                                          // opset version of the domain
  std::optional<int> older_version = {};                    // an older version that the file imports as well
  std::vector<Val> inputs;                                  // invalid if the input name is empty
  int num_outputs = 1;                                      // number of listed outputs, including omitted ones
  std::vector<bool> used;                                   // by output: a node or the model reads it
  std::map<std::string, std::vector<std::string>> strings;  // attributes that are lists of strings
  Attrs attrs;  // all other attributes; "to" and "dtype" are ONNX type numbers
};

// Provides a node and the services of the importer to an import function.
class ImportContext {
 public:
  virtual ~ImportContext() = default;

  const NodeView& node() const { return *node_; }
  Builder& b() const { return *b_; }
  const Attrs& attrs() const { return node_->attrs; }
  size_t num_inputs() const { return node_->inputs.size(); }
  bool has(size_t i) const { return i < node_->inputs.size() && node_->inputs[i].valid(); }
  Val in(size_t i) const { return i < node_->inputs.size() ? node_->inputs[i] : Val(); }

  // Returns `newer` if the opset of the node is at least `version`, else `older`.
  template <typename T>
  T since(int version, T newer, T older) const {
    const bool other = node_->older_version.has_value() && *node_->older_version < version;
    opset_matters_ |= other && node_->version >= version && newer != older;
    return node_->version >= version ? newer : older;
  }
  // Returns true if the node would have another meaning in the older opset that the file imports as well.
  bool opset_matters() const { return opset_matters_; }

  // Returns `training`, and records that the graph of this node differs between training and inference.
  bool for_training() const {
    mode_matters_ = true;
    return training;
  }
  bool mode_matters() const { return mode_matters_; }

  // Returns the value of input i if it is known at import: a constant, or a weight, which this use then does not train.
  // Null if it is computed from feeds.
  virtual const HostTensor* Known(size_t i) = 0;
  // Return the known value as a list, or an error that calls the input `what`.
  absl::StatusOr<std::vector<int64_t>> KnownInts(size_t i, std::string_view what);
  absl::StatusOr<std::vector<double>> KnownDoubles(size_t i, std::string_view what);
  // Reads the attribute `name` or, in later versions of an operator, input i. Returns `otherwise` if both are absent.
  absl::StatusOr<std::vector<int64_t>> IntsFromAttrOrInput(std::string_view name, size_t i,
                                                           std::vector<int64_t> otherwise);

  // Creates a trainable weight, with initial value `tensor`, from a list of floats in an attribute (ai.onnx.ml), to
  // which the exporter writes it back. The default implementation returns a constant.
  virtual Val AttributeWeight(std::string_view attribute, HostTensor tensor) { return b().Constant(std::move(tensor)); }
  // Registers that `prediction` is the softmax of `logits`, up to a factor per sample, so that losses can use the
  // logits. Accepts invalid Vals. FindLogits returns an invalid Val for an unregistered prediction.
  virtual void SetLogits(Val prediction, Val logits) {}
  virtual Val FindLogits(Val prediction) { return Val(); }

  // Replaces input i, integers with the real value `value`, by a float weight with initial value `value`, which the
  // exporter quantizes again. Returns an invalid Val if input i is not an initializer or already has another real
  // value.
  virtual Val AsFloatWeight(size_t, const HostTensor&) { return Val(); }
  // Turns input i, which must be a weight, into state that the training step updates, such as BatchNorm statistics.
  virtual absl::StatusOr<Val> AsState(size_t i) = 0;
  // Registers that a training step replaces `state` by `value`, which is momentum·state plus a term that does not
  // depend on `state`.
  virtual void UpdateState(Val state, Val value, double momentum) = 0;

  // Import options.
  bool training = false;               // activates Dropout and batch statistics; import functions call for_training()
  bool batch_norm_frozen = false;      // BatchNorm keeps its running statistics even in training
  double dropout = -1;                 // ratio for every Dropout node; < 0: the ratio of the node
  DType float_type = DType::kFloat32;  // type that replaces float32
  bool conformance = false;            // follow the ONNX standard literally (population variance in running statistics)
  virtual Val RandomKey() = 0;         // the fed key, u32[4]: (seed, attempted step, micro index, piece); ops/README.md
  virtual int64_t RandomStream() = 0;  // a number that depends only on the source name of the node

 protected:
  const NodeView* node_ = nullptr;
  Builder* b_ = nullptr;

 private:
  mutable bool opset_matters_ = false, mode_matters_ = false;
};

// An attribute that lists strings, and the attribute of their indices that replaces it when the file is read
// (frontend/onnx/read/read.cc).
struct TextAttr {
  std::string_view texts, places;
};

// Properties of an ONNX operator that the importer and model surgery (frontend/onnx) query.
struct OnnxTraits {
  bool view = false;               // the output has the elements of input 0 in another shape or order
  bool moves = false;              // the output has elements of the inputs: concatenated, selected or repeated
  bool probabilities = false;      // the output holds probabilities or their logarithms
  bool keeps_classes = false;      // computes each class separately; implied by `view` and `probabilities`
  bool keeps_channels = false;     // computes each channel separately: activations, pooling
  bool classifier = false;         // a matrix product or convolution whose output channels can be classes
  bool time_major = false;         // in input 0, axis 0 is time and axis 1 the batch
  bool scores = false;             // may occur between attention scores and their softmax; implied by `view`
  bool scalar_weight = false;      // a scalar input is a factor, an addend or an argument, and may be a parameter
  bool takes_numbers = false;      // an initializer of one element is a constant of the formula: ε, a bound
  uint32_t weight_inputs = 0;      // bit i: input i may be a trained weight
  uint32_t discrete_outputs = 0;   // bit i: output i holds indices or choices, or has no gradient
  uint32_t scores_input = 0;       // the input by which discrete outputs are chosen
  uint32_t reversed_inputs = 0;    // bit i: input i is chosen by its smallest elements: ArgMin, Less, Not
  std::string_view largest_attr;   // the attribute that is 0 if the smallest elements are chosen
  bool keeps_choice = false;       // maps a choice to the same or the opposite one; implied by `view` and `moves`
  bool extreme = false;            // the output has the largest (for reversed inputs: smallest) elements
  bool shape_from_values = false;  // the shapes of outputs depend on the values of inputs
  uint32_t extents_input = 0;      // the input with the extents of the output, batch first; 0: none
  std::string_view type_attr;      // the attribute with the element type of the output
  bool type_defaults_to_float = false;
  TextAttr text_keys = {};    // the keys for a lookup of input 0
  TextAttr text_values = {};  // the strings that can be outputs; if absent, outputs are numbers
};

// An importable ONNX operator. `import` returns one Val per listed output, of which unused ones may be invalid, or an
// error without the node's tag. The importer has checked only the arity.
struct OnnxOp {
  std::string_view domain;  // "" for ai.onnx
  std::string_view op_type;
  int min_inputs = 1, max_inputs = 1;
  ImportFn import = nullptr;
  OnnxTraits traits = {};
};

// Returns the import of an operator, or null if it is unknown.
const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view op_type);
std::vector<const OnnxOp*> AllOnnxOps();

// Convert from and to TensorProto.DataType numbers. Return nullopt and 0, respectively, for unsupported types.
std::optional<DType> DTypeFromOnnx(int64_t onnx_type);
int64_t DTypeToOnnx(DType dtype);

// Declares and registers the import families. Most are defined in the .cc file of the same name. Operators that convert
// to the row of the same name and need no traits are not in a family but have OpRow::onnx.
#define ONNXTRAIN_IMPORT_FAMILIES                                                                                 \
  ElementwiseImports(), ReduceImports(), MatmulImports(), ConvImports(), PoolImports(), ResampleImports(),        \
      SampleImports(), GeometryImports(), NormImports(), SoftmaxImports(), AttentionImports(), ShapeImports(),    \
      IndexImports(), ScatterImports(), SelectionImports(), BitwiseImports(), SignalImports(), TrainingImports(), \
      MlImports(), TfIdfImports(), RandomImports(), LossImports(), RecurrentImports(), QuantizeImports(),         \
      AdapterImports()
std::span<const OnnxOp> ONNXTRAIN_IMPORT_FAMILIES;

// Attribute of LSTM, GRU and RNN, set by the importer and not stored in files: the recurrent biases are zeros, because
// the exporting framework has one bias, and are not trained.
inline constexpr char kSingleBias[] = "importer.single_bias";

// Names that rows of parametrizations (frontend/onnx/recover) add to the graph and files do not hold: an attribute of
// Dropout with a ratio that import options do not replace, the operator of adapters with magnitudes (adapter.cc),
// com.microsoft's Attention after its product with the weights (transformer.cc), and the state at the last position of
// a mask (selection.cc).
inline constexpr char kOwnRatio[] = "importer.own_ratio";
inline constexpr std::string_view kRowDomain = "onnxtrain", kMagnitudeFactor = "MagnitudeFactor",
                                  kProjectedAttention = "ProjectedAttention", kLastSelected = "LastSelected";

}  // namespace onnxtrain
