// Imports ONNX files as canonical graphs. Resolves opset versions, dynamic dims, shape-computing subgraphs and quirks
// of exporters, so that no later stage sees them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/model_input.h"
#include "frontend/onnx/edit/model_edits.h"

namespace onnxtrain {

class MappedFile;

// Returns the name ("x.0") of element i of a sequence, or of the content of an optional, as an input or output of an
// imported graph.
std::string ElementName(const std::string& name, size_t i);

// A parsed and checked model file, without protobuf in its interface: its structure is valid, and the bytes of tensors
// match their shapes. Immutable; any number of threads may import it, with any shapes. Large initializers are views of
// the mapped files, so the files must not be changed in place.
class OnnxModel {
 public:
  // Reads and checks the file. Every error is one line that names the file and the node or tensor.
  static absl::StatusOr<std::shared_ptr<const OnnxModel>> Load(const std::string& path) { return Load(path, {}); }
  // Applies the edits to the message before it is read; edits() returns them.
  static absl::StatusOr<std::shared_ptr<const OnnxModel>> Load(const std::string& path, ModelEdits edits);
  // Reads a copy of the bytes of a file without external data. `name` stands for its path in messages.
  static absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadBytes(std::span<const std::byte> bytes,
                                                                    const std::string& name, ModelEdits edits = {});
  ~OnnxModel();
  // Reads the same file with other edits and the same ties. Edits of weights that the file merges or stores twice are
  // applied to the stored tensors.
  absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadEdited(ModelEdits edits) const;

  using Input = ModelInput;

  const std::string& path() const;
  bool in_memory() const;                    // from LoadBytes; path() is only a name
  const std::string& sha256() const;         // of the file, hex; waits until it is computed
  const ModelEdits& edits() const;           // the differences from the file
  const std::vector<Input>& inputs() const;  // without initializers
  const std::vector<std::string>& outputs() const;
  const std::vector<ValueForm>& output_forms() const;  // of outputs()
  // Returns the inputs that these values (outputs or internal ones) depend on.
  std::vector<Input> FindInputs(const std::vector<std::string>& values) const;
  std::string producer() const;  // "pytorch 1.13.0"
  int64_t ir_version() const;
  std::map<std::string, int64_t> opsets() const;  // by domain, "" for ai.onnx
  struct Node {
    std::string op;      // "Conv" or "com.microsoft.Gelu"
    std::string source;  // the node's name, or its operator and position; used in messages
    std::vector<std::string> inputs, outputs;
  };
  std::vector<Node> nodes() const;                  // of the top graph, in topological order
  std::map<std::string, int> op_histogram() const;  // "Conv" or "com.microsoft.Gelu" → count
  const HostTensor* Initializer(const std::string& name) const;
  std::vector<std::string> InitializerNames() const;

  // Fails if a file that initializers refer to, the model's own or external data, was changed in place since Load.
  absl::Status CheckUnchanged() const;
  // Releases the resident pages of these files. The next access reads them again.
  void ReleasePages() const;
  // Returns the bytes of nodes, and of initializers that are not views of files.
  size_t HeapBytes() const;

  struct Parsed;  // for frontend/onnx only
  const Parsed& parsed() const { return *parsed_; }

 private:
  OnnxModel();
  static absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadMapped(const std::shared_ptr<const MappedFile>& file,
                                                                     const std::string& path, ModelEdits edits,
                                                                     bool in_memory);
  std::unique_ptr<Parsed> parsed_;
};

// The content of an input that is a sequence or optional. Each element becomes a feed ("x.0", "x.1" …).
struct ListInput {
  bool present = true;          // false: an empty optional
  std::vector<Shape> elements;  // of the sequence, or the one tensor of an optional

  bool operator==(const ListInput&) const = default;
};

inline constexpr int kNoBatchAxis = -1;
// Marks a value that is one sample, without a batch axis: its feed or output gets a leading axis of extent 1. Only
// imports with a batch of 1 succeed.
inline constexpr int kAddedBatchAxis = -2;

struct ImportOptions {
  std::map<std::string, Shape> input_shapes;  // concrete; other inputs use their declared dims
  std::map<std::string, int64_t> dim_values;  // --dim NAME=N, by dim_param
  // Inputs, or elements of inputs ("x.0"), that are constants instead of feeds, in the layout of the file. An empty
  // tensor gets the batch as the extent of its batch axis.
  std::map<std::string, HostTensor> fixed_inputs;
  std::map<std::string, ListInput> list_inputs;  // for every input that is a sequence or optional
  // Batch axes of inputs and outputs, if not 0; kNoBatchAxis or kAddedBatchAxis if there is none. Feeds and outputs of
  // the graph, and input_shapes, have the batch first.
  std::map<std::string, int> batch_axes;
  // Extent of free leading dims, and of fixed ones if all inputs share one. 0 means the batch of input_shapes, else 1.
  int64_t batch = 0;
  DType float_type = DType::kFloat32;  // kFloat64: float32 weights, inputs and constants become float64
  bool training = false;
  bool batch_norm_frozen = false;
  std::set<std::string> frozen_scales;  // BatchNorm nodes with these scales stay in inference mode
  // Matrices that the file stores in half precision stay as stored, without a copy, even if they are to be trained (for
  // imports that look at shapes). Beside low-rank updates, those that are not trained always do.
  bool half_weights = false;
  std::set<std::string> float_weights;  // except these
  bool constant_factors = true;         // factors that the exporter derived are constants, else weights
  double dropout = -1;                  // ratio of all Dropout nodes; < 0: as in the file
  bool conformance = false;             // follow ONNX to the letter: keep low precision, fold no constants
  std::vector<std::string> outputs;     // names of values to output instead of the model's outputs
  std::string negated;                  // the output that is negated in the graph; "": none
  PackedInputs packed;                  // optim/step keeps the samples of a row apart

  bool operator==(const ImportOptions&) const = default;
};

// Reason why a weight is trained only on request (`train`).
enum class FixedWeight : uint8_t {
  kNo,
  kBuffer,        // a buffer of the exported module
  kConstant,      // a constant of the exported module
  kStandardizer,  // shifts or scales the inputs of the model
  kHalf,          // stays in half precision; ImportOptions::float_weights makes it floats
};

struct ImportedWeight {
  std::string name;      // of the graph input and of the ONNX initializer or Constant output
  HostTensor value;      // shares the model's bytes
  std::string consumer;  // op_type and name of the first consuming node, for --train, --freeze and inspect
  std::string alias;     // its name in the exported module if the file uses another name; else ""
  FixedWeight fixed = FixedWeight::kNo;
};

// A running average. The new state is momentum·state plus a value of the batch that does not depend on the state.
struct StateUpdate {
  std::string state;   // graph input of kind kState
  std::string output;  // graph output that replaces it in training mode
  double momentum = 0;

  bool operator==(const StateUpdate&) const = default;
};

// The scores that an output of probabilities is computed from.
struct Logits {
  std::string output;                  // the graph output to train on instead
  std::string activation = "Softmax";  // maps scores to probabilities

  bool operator==(const Logits&) const = default;
};

struct ImportedModel {
  Graph graph;                          // inputs: feeds first, then weights (kParameter, kFrozen, kState)
  std::vector<ImportedWeight> weights;  // one per input that is not a feed
  std::vector<std::string> outputs;     // graph outputs for the model's outputs, in order; a sequence has one for each
                                        // element ("y.0", "y.1" …)
  std::set<std::string> moved_outputs;  // outputs whose batch axis was moved to the front
  int64_t batch = 1;                    // leading extent of the feeds
  std::map<std::string, DType> low_precision_outputs;  // declared float16 or bfloat16, computed in float32
  std::map<std::string, Logits> logits;                // by output that holds probabilities, if known
  std::vector<StateUpdate> state_updates;              // with `training` only
  std::vector<std::string> notes;                      // about quirks of the model, for users
  // The batch that the file was exported for, if constants were changed to another batch; else 0.
  // optim/step/verify_batch_size.h runs the model to prove that the change is correct.
  int64_t exported_batch = 0;
  std::string random_key;     // name of the feed u32[4]; "" if the graph draws no random numbers
  bool mode_matters = false;  // the graph may depend on ImportOptions::training
};

// Returns the value of `key` in the metadata_props of the model file, "" if it is absent.
const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key);

// Imports a model for concrete shapes. Float weights become kParameter if they can be trained and reach an output, else
// kFrozen; BatchNorm statistics become kState. optim/step/trainable.h chooses the parameters that are trained. Collects
// all unsupported operators, with counts and node names, into one error before anything else.
absl::StatusOr<ImportedModel> Import(const OnnxModel& model, const ImportOptions& options);

// Returns the error of Import for unsupported operators; needs no shapes. `outputs` is as in ImportOptions.
absl::Status CheckOperators(const OnnxModel& model, const std::vector<std::string>& outputs);

// A node that failed, or all nodes of an operator that is not supported.
struct NodeFailure {
  std::string message;         // one line, which names the node or the operator and its nodes
  std::string unsupported_op;  // "Conv" or "com.microsoft.Gelu"; "" for a node
  // The positive extents of the node's operands, and its known integers (the target of a Reshape). A size that the
  // model requires is among them.
  std::vector<int64_t> extents;
};

absl::Status WithImportFailures(absl::Status status, const std::vector<NodeFailure>& failures);
// Returns the failures that WithImportFailures attached; empty for other errors.
std::vector<NodeFailure> GetImportFailures(const absl::Status& status);

}  // namespace onnxtrain
