#include "optim/auto/synthetic_data.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/synthetic.h"
#include "frontend/ops/row.h"
#include "optim/auto/default_inputs.h"
#include "optim/prepare.h"

namespace onnxtrain {
namespace {

constexpr int64_t kFreeExtent = 32;

// Returns the extent of the table that a feed indexes, directly or through data movement; 2 where it indexes none.
int64_t IndexLimit(const Graph& graph, ValueId feed) {
  const auto readers = ComputeUsers(graph);
  std::vector<ValueId> open = {feed};
  int64_t limit = 0;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    for (int32_t r : readers[v]) {
      const Node& node = graph.nodes()[r];
      if (node.op == "Gather" && node.inputs[1] == v) {
        const int64_t extent = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")];
        limit = limit == 0 ? extent : std::min(limit, extent);
      } else if (FindOp(node.op)->moves_data) {
        open.insert(open.end(), node.outputs.begin(), node.outputs.end());
      }
    }
  }
  return limit == 0 ? 2 : limit;
}

bool IsMask(const std::string& name) { return name.find("mask") != std::string::npos; }

std::string DescribeColumn(const SyntheticColumn& c) {
  if (IsFloat(c.sample.dtype)) return "normal numbers";
  if (!IsInteger(c.sample.dtype)) return "coins";
  return c.low + 1 == c.high ? StrCat("all ", c.low) : StrCat("integers from ", c.low, " to ", c.high - 1);
}

// Returns the extent of an axis that the first MatMul, Gemm or Conv of an input requires; 0 where there is none.
int64_t WantedExtent(const OnnxModel& model, const OnnxModel::Input& input, size_t axis) {
  for (const OnnxModel::Node& node : model.nodes()) {
    if (node.inputs.size() < 2 || node.inputs[0] != input.name) continue;
    const HostTensor* weight = model.Initializer(node.inputs[1]);
    if (weight == nullptr || weight->type().rank() < 2) continue;
    const Shape& shape = weight->shape();
    if (node.op == "Conv" && axis == 1) return shape[1];
    if (node.op == "MatMul" && axis + 1 == input.dims.size()) return shape[shape.size() - 2];
    // transB is unknown here; a classifier's matrix narrows.
    if (node.op == "Gemm" && axis == 1) return std::max(shape[0], shape[1]);
  }
  return 0;
}

absl::StatusOr<Shape> GetSampleShape(const OnnxModel& model, const OnnxModel::Input& input,
                                     const std::map<std::string, int64_t>& dims) {
  if (!input.has_shape || input.dims.empty()) {
    return Invalid("input '", input.name, "' has no shape with a batch axis: no sample can be made up for it");
  }
  Shape shape;
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const auto it = i < input.dim_names.size() ? dims.find(input.dim_names[i]) : dims.end();
    const int64_t wanted = input.dims[i] >= 0 || it != dims.end() ? 0 : WantedExtent(model, input, i);
    shape.push_back(input.dims[i] >= 0 ? input.dims[i]
                    : it != dims.end() ? it->second
                    : wanted > 0       ? wanted
                                       : kFreeExtent);
  }
  return shape;
}

SyntheticColumn InputColumn(const Graph& graph, const OnnxModel::Input& input, const Shape& sample) {
  SyntheticColumn column{.name = input.name, .sample = {input.dtype, sample}};
  const GraphInput* feed = graph.FindInput(input.name);
  if (IsInteger(input.dtype) && feed != nullptr) column.high = IndexLimit(graph, feed->value);
  if (IsInteger(input.dtype) && IsMask(input.name)) column.low = 1, column.high = 2;
  return column;
}

// Class indices for classes, 0 or 1 for probabilities, normal numbers for the rest.
SyntheticColumn LabelColumn(const LossChoice& loss, const LossFeed& feed) {
  const std::string name = feed.label.empty() ? "label" : feed.label;
  for (const LossTerm& term : loss.terms) {
    // Class 0 is usually the blank of CTC, which is no label.
    const int64_t first = term.feed == feed.name && term.form == LabelForm::kSequence && feed.num_classes > 1 ? 1 : 0;
    if (feed.num_classes > 0) return {name, {DType::kInt64, feed.sample.shape}, first, feed.num_classes};
    const bool binary_labels =
        term.feed == feed.name && term.form == LabelForm::kElements && !term.function->final_activations.empty();
    if (binary_labels) return {name, {DType::kInt64, feed.sample.shape}, 0, 2};
  }
  if (IsInteger(feed.sample.dtype)) return {name, {DType::kInt64, feed.sample.shape}, 0, 2};
  return {name, {DType::kFloat32, feed.sample.shape}};
}

}  // namespace

absl::StatusOr<std::map<std::string, Shape>> MakeSyntheticShapes(const OnnxModel& model, const LossSpec& loss,
                                                                 const std::map<std::string, int64_t>& dims) {
  std::map<std::string, Shape> shapes;
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  const std::vector<OnnxModel::Input> needed = NeededInputs(model, outputs);
  for (const auto& input : WithoutFixed(needed, FindDefaultInputs(needed))) {
    ASSIGN_OR_RETURN(const Shape sample, GetSampleShape(model, input, dims));
    Shape& shape = shapes[input.name] = {-1};
    shape.insert(shape.end(), sample.begin(), sample.end());
  }
  return shapes;
}

absl::Status AnnotateFreeDims(const absl::Status& status, const OnnxModel& model,
                              const std::map<std::string, int64_t>& dims) {
  std::string free;
  for (const auto& input : model.inputs()) {
    for (size_t i = 1; i < input.dims.size(); ++i) {
      const std::string name = i < input.dim_names.size() ? input.dim_names[i] : "";
      if (input.dims[i] >= 0 || name.empty() || dims.contains(name) || free.find(" " + name + "=") != std::string::npos)
        continue;
      StrAppend(&free, " `dim` ", name, "=N");
    }
  }
  if (status.ok() || free.empty()) return status;
  return absl::Status(status.code(),
                      StrCat(status.message(), " (free dimensions were taken to be ", kFreeExtent, "; say", free, ")"));
}

absl::StatusOr<BoundData> MakeSyntheticData(const OnnxModel& model, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, uint64_t seed) {
  BoundData data;
  PrepareOptions prepare{.import = import, .loss = loss};
  ASSIGN_OR_RETURN(data.input_shapes, MakeSyntheticShapes(model, loss, import.dim_values));
  prepare.import.input_shapes = data.input_shapes;
  const auto prepared_or = Prepare(model, prepare, 2, true);
  if (!prepared_or.ok()) return AnnotateFreeDims(prepared_or.status(), model, import.dim_values);
  const PreparedModel& prepared = *prepared_or;
  std::vector<SyntheticColumn> columns;
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  const std::vector<OnnxModel::Input> needed = NeededInputs(model, outputs);
  const DefaultInputs natural = FindDefaultInputs(needed);
  data.fixed_inputs = natural.fixed;
  data.notes = natural.notes;
  const std::vector<OnnxModel::Input> inputs = WithoutFixed(needed, natural);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = data.input_shapes.at(inputs[i].name);
    columns.push_back(InputColumn(prepared.model.graph, inputs[i], {shape.begin() + 1, shape.end()}));
    data.feeds.push_back(
        {.feed = columns.back().name, .columns = {static_cast<int>(i)}, .sample = columns.back().sample});
    data.notes.push_back(StrCat("input '", columns.back().name, "' ", ToString(columns.back().sample), " ← ",
                                DescribeColumn(columns.back())));
  }
  for (const LossFeed& feed : prepared.loss.feeds) {
    const SyntheticColumn column = LabelColumn(prepared.loss, feed);
    BoundLabel& label = feed.label.empty() ? data.label : data.own_labels[feed.label];
    if (!label.columns.empty())
      return Invalid("`loss` ", loss.name,
                     ": synthetic labels fit one kind of loss: give each loss labels of its own (label=NAME)");
    label.columns = {static_cast<int>(columns.size())};
    label.info = {.present = true, .sample = column.sample, .min_value = column.low, .max_value = column.high - 1};
    columns.push_back(column);
  }
  data.dataset = SyntheticDataset(std::move(columns), size, seed);
  return data;
}

}  // namespace onnxtrain
