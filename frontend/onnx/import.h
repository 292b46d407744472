// ONNX file → canonical graph. Opset versions, dynamic dims, shape subgraphs and export quirks end here.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/onnx/edits.h"

namespace onnxtrain {

// Is a value a tensor (neither flag), a sequence of tensors, an optional tensor, or an optional sequence?
struct ValueForm {
  bool optional = false, sequence = false;

  bool is_tensor() const { return !optional && !sequence; }
};

// The name of element i of a sequence, or of what an optional holds, among the inputs and outputs of an imported graph.
std::string ElementName(const std::string& name, size_t i);  // "x.0"

// A parsed, guarded model file: structure checked, tensors' bytes checked against their declared shapes, no protobuf in
// the interface. Immutable; may be imported many times with different shapes, from any thread. Large initializers are
// views of the mapped files: they take no memory of their own, and the files must not be changed in place.
class OnnxModel {
 public:
  // Reads and validates. Every error is one line that names the file and the node or tensor.
  static absl::StatusOr<std::shared_ptr<const OnnxModel>> Load(const std::string& path) { return Load(path, {}); }
  // The same with edits applied first, which the model remembers.
  static absl::StatusOr<std::shared_ptr<const OnnxModel>> Load(const std::string& path, ModelEdits edits);
  ~OnnxModel();

  struct Input {
    std::string name;
    DType dtype;
    std::vector<int64_t> dims;            // -1 where free
    std::vector<std::string> dim_names;   // "" where fixed or unnamed
    bool has_shape = true;
    ValueForm form;                       // dtype and dims are those of tensors
  };

  const std::string& path() const;
  const std::string& sha256() const;                       // of the file, hex
  const ModelEdits& edits() const;                         // what differs from the file
  const std::vector<Input>& inputs() const;                // those that are no initializers
  const std::vector<std::string>& outputs() const;
  const std::vector<ValueForm>& output_forms() const;      // of outputs()
  // The inputs that these values (outputs or internal ones) are computed from.
  std::vector<Input> InputsOf(const std::vector<std::string>& values) const;
  std::string producer() const;                            // "pytorch 1.13.0"
  int64_t ir_version() const;
  std::map<std::string, int64_t> opsets() const;           // by domain, "" for ai.onnx
  struct Node {
    std::string op;                         // "Conv" or "com.microsoft.Gelu"
    std::string source;                     // its name, or one made of op and position: what messages call it
    std::vector<std::string> inputs, outputs;
  };
  std::vector<Node> nodes() const;                         // of the top graph, in topological order
  std::map<std::string, int> op_histogram() const;         // "Conv" or "com.microsoft.Gelu" → count
  const HostTensor* Initializer(const std::string& name) const;
  std::vector<std::string> InitializerNames() const;

  // Fails if a file that initializers look into (the model's own or external data) was changed in place since Load.
  absl::Status CheckUnchanged() const;
  // Gives resident pages of these files back; they are read again where somebody needs them.
  void DropResident() const;
  // Bytes of initializers that are no views of files: what the model itself holds.
  size_t OwnBytes() const;

  struct Parsed;  // frontend/onnx only
  const Parsed& parsed() const { return *parsed_; }

 private:
  OnnxModel();
  std::unique_ptr<Parsed> parsed_;
};

// A sequence or optional that is a model input: there is none at run time, its elements are feeds ("x.0", "x.1" …).
struct ListInput {
  bool present = true;           // false: an optional that holds nothing
  std::vector<Shape> elements;   // of the sequence, or of the one tensor that an optional holds
};

struct ImportOptions {
  std::map<std::string, Shape> input_shapes;      // concrete; an input that is missing here uses its own dims
  std::map<std::string, int64_t> dim_values;      // --dim NAME=N, by dim_param
  std::map<std::string, HostTensor> fixed_inputs;  // inputs (or elements, "x.0") that are constants and no feeds;
                                                   // one without elements gets the batch as its leading extent
  std::map<std::string, ListInput> list_inputs;    // of every sequence or optional that is an input
  int64_t batch = 0;                              // value of a free (or, where it is provable, fixed 1) leading dim; 0: 1
  DType float_type = DType::kFloat32;             // kFloat64: all float32 weights, inputs and constants become float64
  bool training = false;
  bool batch_norm_frozen = false;
  std::set<std::string> frozen_scales;            // names of BatchNorm scales: these nodes alone stay in inference mode
  double dropout = -1;
  bool conformance = false;                       // follow ONNX to the letter; initializers of rank 0 stay inputs' values
  std::vector<std::string> outputs;               // internal value names to make outputs instead of the model's own
};

struct ImportedWeight {
  std::string name;        // the graph input's name = the ONNX initializer's (or Constant node output's) name
  HostTensor value;        // shares the model's bytes
  std::string consumer;    // op_type and name of the first consuming node, for --train/--freeze and inspect
};

struct StateUpdate {
  std::string state;       // graph input of kind kState
  std::string output;      // graph output that replaces it in training mode
};

struct ImportedModel {
  Graph graph;                            // inputs: feeds (model inputs), weights (kParameter candidates, kFrozen, kState)
  std::vector<ImportedWeight> weights;    // one per non-feed input
  std::vector<std::string> outputs;       // names of the graph outputs that are the model's, in the model's order;
                                          // those of a sequence are as many as it has elements ("y.0", "y.1" …)
  std::map<std::string, DType> halves;    // of outputs: declared float16 or bfloat16, computed in float32 and not rounded yet
  std::map<std::string, std::string> logits;  // of outputs that end in a classifier: the graph output to train on instead
  std::vector<StateUpdate> state_updates; // only with `training`
  std::vector<std::string> notes;         // quirks met, for people: "final Softmax", "Dropout in inference mode: …"
  int64_t frozen_batch = 0;               // the batch that the file was exported for and that constants gave way; 0: none.
                                          // That the model follows the new one is to be proved by running: optim/prove_batch.h
  std::string random_key;                 // name of the feed u32[4], "" if the graph draws no random numbers
};

// Float weights that reach an output and may be trained come out as kParameter, others as kFrozen, BatchNorm statistics
// as kState; which kParameter is really trained is decided by optim/trainable.h. All unsupported operators are collected
// into one error, with counts and node names, before anything else.
absl::StatusOr<ImportedModel> Import(const OnnxModel& model, const ImportOptions& options);

// That error alone, which needs no shapes; for these values as outputs, or the model's own where there are none.
absl::Status CheckOperators(const OnnxModel& model, const std::vector<std::string>& outputs);

}  // namespace onnxtrain
