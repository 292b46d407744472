// The forms in which files store parameters, as a table. Each row recognizes one form, puts into the graph what is
// trained in its place, and makes the stored tensors from the trained ones when the model is exported.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Trained weights on their way into the file. Rows replace them by what the file stores.
struct StoredWeights {
  // A weight that the file has merged into another one. Without a value it was not trained.
  struct Split {
    const SplitWeight* split = nullptr;
    std::optional<LazyTensor> value;
  };

  std::map<std::string, LazyTensor> tensors;  // by initializer, once all rows have written
  std::vector<Split> splits;                  // in the order of the records
  std::vector<SplitNodes> nodes;              // to copy where a weight that a copy reads differs
  // Returns an initializer or the value of a Constant node as the file stores it. Errors do not name it.
  std::function<absl::StatusOr<HostTensor>(const std::string&)> read;
};

struct Parametrization {
  std::string_view name;  // as `inspect` prints it
  std::string_view flag;  // the field of the configuration that decides otherwise; "": there is none
  // Returns the weights that are stored in this form. The graph stays as it is.
  absl::StatusOr<WeightRecords> (*matches)(WeightIndex*);
  // Puts what is trained into the graph; null where the import of the reading node does. It removes and adds nodes by
  // the index, so that pointers to others stay valid.
  void (*build)(const WeightRecord&, WeightIndex*);
  // Makes the stored tensors from the trained ones; null where the file stores what is trained.
  absl::Status (*write)(const WeightRecord&, StoredWeights*) = nullptr;
};

// Returns the rows in the order in which they are tried. Later rows see the graph that earlier ones have built.
std::span<const Parametrization> GetParametrizations();

// Runs all rows on the model's graph and keeps their records in it.
absl::Status RecoverWeights(const TorchMetadata& metadata, OnnxModel::Parsed* model);

// Lets the rows write, the last one first.
absl::Status WriteStoredForms(const WeightRecords& records, StoredWeights* weights);

// The row that a weight of the graph got last, for users; "plain" where the file stores what is trained.
struct WeightForm {
  std::string row, why;
  std::string flag;  // the field of the configuration, in backquotes, that decides otherwise; "": there is none
};
WeightForm DescribeForm(const OnnxModel& model, const std::string& weight);

}  // namespace onnxtrain
