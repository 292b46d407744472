// Exports the original model with trained weights, and graphs as models. Preserves names, order, metadata, opsets and
// the bytes of unchanged initializers. Constant nodes get new bytes; ConstantOfShape nodes that fill weights become
// initializers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Reads the file of a loaded model again, applies the edits that it was loaded with, replaces the weights by the stored
// forms of their parametrizations, in the stored shapes, sets BatchNormalization and Dropout to inference mode, and
// writes `target` atomically. External data stays external (external_writer.h). Fails if the file or its external data
// has changed. Returns one line for users per kind of change. `errors`, if not null, gets the relative error of each
// sum with low-rank updates that was quantized, by weight.
absl::StatusOr<std::vector<std::string>> Export(const OnnxModel& model,
                                                const std::map<std::string, HostTensor>& weights,
                                                const std::string& target,
                                                std::vector<std::pair<std::string, double>>* errors = nullptr);

// Writes the base of a model with low-rank updates. A [inputs, rank] and B [rank, outputs] of each update become
// optional inputs with zeros as defaults, so that the file computes the base by default; initializers in `weights`
// become optional inputs, too. Fails, naming the product or weight, if the file does not store it as such.
absl::Status ExportAdapterInputs(const OnnxModel& model, const std::vector<std::string>& weights,
                                 const std::string& target);

// Checks that ExportAdapterInputs to `target` will succeed. Leaves no files.
absl::Status CheckAdapterInputs(const OnnxModel& model, const std::vector<std::string>& weights,
                                const std::string& target);

// Returns the bytes that Export would write for a model without external data.
absl::StatusOr<std::string> ExportBytes(const OnnxModel& model, const std::map<std::string, HostTensor>& weights);

// Checks that Export to `target` will succeed with weights of these shapes: applies all edits in memory and checks the
// size, and that the folder is writable and has enough space. Leaves no files.
absl::Status CheckExport(const OnnxModel& model, const std::map<std::string, HostTensor>& weights,
                         const std::string& target);

// Returns the bytes of the model. Composites without an ONNX operator are decomposed. Feeds, parameters and state
// become inputs, frozen weights initializers. `values` holds tensors by input name, which are required for frozen
// weights and the defaults of other inputs. Removes a leading "$" from names; an output that updates the input NAME is
// called NAME_new. Fails, naming the node, if ONNX has no operator for it.
absl::StatusOr<std::string> SerializeGraph(const Graph& graph, const std::map<std::string, HostTensor>& values);

// A model that SerializeGraph wrote for one batch.
struct SizedModel {
  int64_t batch = 0;
  std::string bytes;
};

// Returns a model whose extents and constants are computed from the first extent of an input, dimension "batch".
// `models` are three of the same graph at different batches. Constants may be a + b·batch, a + b/batch or 1/(a +
// b/batch), and extents along which they repeat a + b·batch; the third model verifies the formulas. Fails, naming the
// constant or node, if it depends on the batch in another way.
absl::StatusOr<std::string> FreeBatch(std::span<const SizedModel> models);

}  // namespace onnxtrain
