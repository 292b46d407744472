// How ONNX nodes become canonical operators. The importer (frontend/onnx) shows each node as a NodeView; the functions
// here, grouped by the same families as the rows, are the only place that knows opset versions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// A plain view of one ONNX node. Attributes that hold graphs do not appear.
struct NodeView {
  std::string_view domain;   // "" for ai.onnx
  std::string_view op_type;
  std::string_view name;     // may be empty
  int version = 0;           // opset version of the domain
  std::vector<Val> inputs;   // invalid where the input name is empty
  int num_outputs = 1;       // how many outputs the node lists
  std::vector<bool> used;    // per listed output: does anybody read it?
  std::map<std::string, std::vector<std::string>> strings;  // attributes that are lists of strings
  Attrs attrs;               // ints→int64, floats→double; tensors as HostTensor. "to"/"dtype" keep ONNX's numbers
};

// What an import function may use besides the node.
class ImportContext {
 public:
  virtual ~ImportContext() = default;

  const NodeView& node() const { return *node_; }
  Builder& b() const { return *b_; }
  const Attrs& attrs() const { return node_->attrs; }
  size_t num_inputs() const { return node_->inputs.size(); }
  bool has(size_t i) const { return i < node_->inputs.size() && node_->inputs[i].valid(); }
  Val in(size_t i) const { return i < node_->inputs.size() ? node_->inputs[i] : Val(); }

  // The value of input i where it is known at import: a constant, or a weight that is then not trained through this
  // use. Null where it is computed from fed data.
  virtual const HostTensor* Known(size_t i) = 0;
  // The same, as a list of integers or doubles; an error that names the input where it is not known.
  absl::StatusOr<std::vector<int64_t>> KnownInts(size_t i, std::string_view what);
  absl::StatusOr<std::vector<double>> KnownDoubles(size_t i, std::string_view what);
  // From the attribute `name` or, in later versions of an operator, from input i; `otherwise` where neither is given.
  absl::StatusOr<std::vector<int64_t>> IntsFromAttrOrInput(std::string_view name, size_t i,
                                                           std::vector<int64_t> otherwise);

  // A trainable weight that the file holds as a list of floats in an attribute (ai.onnx.ml); `tensor` has its numbers. The
  // exporter writes it back there. A constant where weights are not kept apart.
  virtual Val AttributeWeight(std::string_view attribute, HostTensor tensor) { return b().Constant(std::move(tensor)); }
  // A prediction of a classifier is the softmax of `logits`, up to a factor per sample: what to train on. Invalid Vals and
  // unknown predictions are fine.
  virtual void SetLogits(Val prediction, Val logits) {}
  virtual Val LogitsOf(Val prediction) { return Val(); }

  // Turns input i, a tensor of integers that stand for `value`, into a float weight that starts as `value` and that the
  // exporter turns into integers again. Invalid where input i is no initializer (or there is no model around the node), or stands for another value already.
  virtual Val AsFloatWeight(size_t, const HostTensor&) { return Val(); }
  // Turns input i, which must be a weight, into state that the training step updates (BatchNorm statistics).
  virtual absl::StatusOr<Val> AsState(size_t i) = 0;
  // Registers that running the model in training mode replaces `state` by `value`.
  virtual void UpdateState(Val state, Val value) = 0;

  // Import options that some operators look at.
  bool training = false;            // import for training: Dropout active, BatchNorm on batch statistics
  bool batch_norm_frozen = false;   // BatchNorm keeps its running statistics even in training
  double dropout = -1;              // ratio for every Dropout node; < 0: the node's own
  DType float_type = DType::kFloat32;  // what float32 becomes
  bool conformance = false;         // follow ONNX to the letter (population variance in running statistics)
  virtual Val RandomKey() = 0;      // u32[4], fed: (seed, attempted step, micro index, rank); ops/README.md
  virtual int64_t RandomStream() = 0;  // a number that is a function of the node's source name alone

 protected:
  const NodeView* node_ = nullptr;
  Builder* b_ = nullptr;
};

// One Val per listed output (extra or unused outputs may be invalid Vals), or what is wrong (without tag).
// Arity has been checked against min/max_inputs; everything else about the user's node has not.
using ImportFn = absl::StatusOr<std::vector<Val>> (*)(ImportContext&);

struct OnnxOp {
  std::string_view domain;    // "" for ai.onnx
  std::string_view op_type;
  int min_inputs = 1, max_inputs = 1;
  ImportFn import = nullptr;  // null: the canonical operator of the same name with the same inputs and attributes
};

// Null where we do not know the operator.
const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view op_type);
std::vector<const OnnxOp*> AllOnnxOps();

// ONNX's TensorProto.DataType number, where we have the type.
std::optional<DType> DTypeFromOnnx(int64_t onnx_type);
int64_t DTypeToOnnx(DType dtype);

std::span<const OnnxOp> ElementwiseImports();
std::span<const OnnxOp> ReduceImports();
std::span<const OnnxOp> MatmulImports();
std::span<const OnnxOp> ConvImports();
std::span<const OnnxOp> PoolImports();
std::span<const OnnxOp> ResampleImports();
std::span<const OnnxOp> SampleImports();
std::span<const OnnxOp> GeometryImports();
std::span<const OnnxOp> NormImports();
std::span<const OnnxOp> SoftmaxImports();
std::span<const OnnxOp> AttentionImports();
std::span<const OnnxOp> ShapeImports();
std::span<const OnnxOp> IndexImports();
std::span<const OnnxOp> ScatterImports();
std::span<const OnnxOp> SelectionImports();
std::span<const OnnxOp> BitwiseImports();
std::span<const OnnxOp> SignalImports();
std::span<const OnnxOp> TrainingImports();
std::span<const OnnxOp> MlImports();
std::span<const OnnxOp> TfIdfImports();
std::span<const OnnxOp> RandomImports();
std::span<const OnnxOp> LossImports();
std::span<const OnnxOp> QuantizeImports();

}  // namespace onnxtrain
