// Which columns of a data set feed which model input, and which are the label.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/loader.h"
#include "frontend/onnx/import.h"
#include "optim/loss.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {

struct BindSpec {
  std::map<std::string, std::vector<std::string>> inputs;  // model input → columns, by name or 0-based index
  std::vector<std::string> label;                          // columns; empty: found
  std::map<std::string, std::vector<std::string>> own_labels;  // columns of losses with labels of their own, by a key
  bool want_label = true;                                  // else a missing label is no error
  std::map<std::string, int64_t> dims;                     // values of named free dimensions
  PixelScale pixels;                                       // for image columns
  int64_t ignore_index = -100;                             // does not count for the range of the labels
  std::string leave_out;                                   // a column that is neither input nor label
};

struct BoundLabel {
  std::vector<int> columns;  // empty: there is none
  LabelInfo info;
  std::string text;          // which column it is, for people; "" without label
};

struct BoundData {
  std::shared_ptr<const Dataset> dataset;  // perhaps with constant columns behind its own
  std::vector<FeedSpec> feeds;             // of the model's inputs
  BoundLabel label;
  std::map<std::string, BoundLabel> own_labels;  // as BindSpec has them
  std::vector<std::string> classes;           // names, where the label has them
  std::map<std::string, Shape> input_shapes;  // of inputs with free dimensions besides the batch, which stands as -1
  std::map<std::string, HostTensor> fixed_inputs;  // inputs without data that are constants of the graph
  bool has_images = false;                    // is an image column fed?
  std::vector<std::string> notes;             // one line per decision, for people
};

// Explicit bindings first, then columns named like an input, then what is left over where only one way is left: the one
// unbound input takes the one column that fits, or all numeric columns of a table. Helper inputs of text models
// (attention_mask, token_type_ids, position_ids) have defaults. Anything ambiguous fails with the choices listed.
absl::StatusOr<BoundData> BindData(const std::vector<OnnxModel::Input>& inputs, std::shared_ptr<const Dataset> dataset,
                                   const BindSpec& spec);

// The labels that a feed of the loss takes; null where the data has none.
const BoundLabel* LabelOf(const BoundData& data, const LossFeed& feed);

// The column that is the label by its name ("label", "target", "y", …), or nullopt; several such names are an error.
absl::StatusOr<std::optional<int>> LabelByName(const std::vector<Column>& columns);

// The shape of one sample of an input with these extents (-1: free) when fed with samples of shape `data`; an error
// where the extents contradict each other or the layout seems to differ. `fixed` has no batch axis.
absl::StatusOr<Shape> FitSample(const Shape& data, const Shape& fixed);

}  // namespace onnxtrain::cli
