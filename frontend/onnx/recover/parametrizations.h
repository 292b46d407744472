// Defines the table of the forms in which files store parameters. Each row recognizes one form, inserts the trained
// weights into the graph, and computes the stored tensors from the trained ones when the model is exported.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Weights during an export: trained ones, which the rows replace by the stored tensors.
struct StoredWeights {
  // A weight that the file has merged into another one. It has no value if it was not trained.
  struct Split {
    const SplitWeight* split = nullptr;
    std::optional<LazyTensor> value;
  };

  std::map<std::string, LazyTensor> tensors;  // by initializer, once all rows have written
  std::vector<Split> splits;                  // in the order of the records
  std::vector<SplitNodes> nodes;              // nodes that are copied if a weight of a copy has changed
  bool checks_only = false;                   // quantized weights may stay as they are
  // The quantized weights that updates were merged into, with the relative errors of the sums.
  std::vector<std::pair<std::string, double>> requantized;
  // Returns an initializer or the value of a Constant node as the file stores it. Errors do not name it.
  std::function<absl::StatusOr<HostTensor>(const std::string&)> read;
};

struct Parametrization {
  std::string_view name;  // as `inspect` prints it
  std::string_view flag;  // the configuration field that overrides the row; "": none
  // Returns the weights that are stored in this form. The graph stays as it is.
  absl::StatusOr<WeightRecords> (*matches)(WeightIndex*);
  // Inserts the trained weights into the graph; null if the import of the reading node does so. Removes and adds nodes
  // through the index, so that pointers to other nodes stay valid.
  void (*build)(const WeightRecord&, WeightIndex*);
  // Computes the stored tensors from the trained ones; null if the file stores the trained ones.
  absl::Status (*write)(const WeightRecord&, StoredWeights*) = nullptr;
};

// Returns the rows in the order in which they are tried. Later rows see the graph that earlier ones have built.
std::span<const Parametrization> GetParametrizations();

// Runs all rows on the model's graph and keeps their records in it.
absl::Status RecoverWeights(const TorchMetadata& metadata, OnnxModel::Parsed* model);

// Lets the rows write, the last one first.
absl::Status WriteStoredForms(const WeightRecords& records, StoredWeights* weights);

// Describes the last row that matched a weight of the graph to users; "plain" if the file stores the trained tensor.
struct WeightForm {
  std::string row, why;
  std::string flag;  // the configuration field, in backquotes, that overrides the row; "": none
};
WeightForm DescribeForm(const OnnxModel& model, const std::string& weight);

}  // namespace onnxtrain
