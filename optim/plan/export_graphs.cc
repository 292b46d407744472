#include "optim/plan/export_graphs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/onnx/write/export.h"
#include "optim/config/training_settings.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/training_run.h"
#include "optim/step/gradient_scaling.h"
#include "optim/step/rules/rule.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

using Values = std::map<std::string, HostTensor>;

constexpr int64_t kSampleBatches[] = {6, 10, 15};  // batches from which a graph for any batch is generalized

// Returns the update as a node of ai.onnx.preview.training, with one rate and one decay for all weights and without
// clipping. Returns nullopt if no node computes the same numbers: the node Adam adds its epsilon before the bias
// correction.
std::optional<PreviewUpdate> MakePreviewUpdate(const OptimizerSpec& spec,
                                               const std::map<std::string, UpdateRule>& rules) {
  const bool plain = spec.max_grad_norm == 0 && spec.clip_value == 0 && spec.agc == 0 && !KeepsAverage(spec);
  const UpdateRule first = rules.begin()->second;
  const auto alike = [&](const auto& rule) { return rule.second == first; };
  if (!plain || !std::ranges::all_of(rules, alike)) return std::nullopt;
  PreviewUpdate update{.rate = spec.lr * first.lr_factor};
  if (spec.rule == "sgd") {
    update.op = "Momentum";
    update.attributes = {{"alpha", spec.momentum},
                         {"beta", spec.momentum == 0 ? 1.0 : 1 - spec.dampening},
                         {"mode", std::string(spec.nesterov ? "nesterov" : "standard")}};
  } else if (spec.rule == "adagrad") {
    update.op = "Adagrad";
    update.attributes = {{"epsilon", spec.eps}, {"decay_factor", 0.0}};
  } else {
    return std::nullopt;
  }
  update.attributes.Set("norm_coefficient", first.weight_decay);
  for (const auto& [name, rule] : rules) update.weights.push_back(name);
  return update;
}

enum class GraphKind : uint8_t { kGradients, kUpdate, kInference };

class GraphExporter {
 public:
  GraphExporter(const TrainConfig& config, TrainingData data, const Values& weights)
      : config_(config), data_(std::move(data)), weights_(weights), models_(data_.model) {}

  // Prepares for the batch size of graphs that accept only one.
  absl::Status Prepare(ExportedGraphs* exported) {
    const BoundData& bound = data_.train.bound;
    const int64_t batch = GlobalBatchSize(config_, *data_.model, bound.batch_axes);
    ASSIGN_OR_RETURN(options_, MakeSessionOptions(config_, *data_.model, bound, data_.loss, batch));
    ASSIGN_OR_RETURN(const PreparedModel look, PrepareFor(models_, bound, &options_, true));
    RETURN_IF_ERROR(RefuseUnused(config_, MakeRunFacts(config_, data_, look.loss)));
    RETURN_IF_ERROR(CheckWeights(look.model.graph));
    if (options_.fixed_batch == 0 && look.model.exported_batch > 1 && config_.batch_size == 0)
      options_.fixed_batch = options_.micro_batch = look.model.exported_batch;
    if (options_.fixed_batch != 0 && config_.batch_size != 0 && config_.batch_size != options_.fixed_batch)
      return Invalid("`batch_size` ", config_.batch_size, ": ", DescribeFixedBatch(options_.fixed_batch));
    exported->notes = data_.train.bound.notes;
    exported->notes.insert(exported->notes.end(), data_.surgery.begin(), data_.surgery.end());
    exported->notes.push_back(look.loss.explanation);
    return config_.training_graph.empty() ? absl::OkStatus() : ChooseUpdate(look, exported);
  }

  absl::Status Write(const std::string& path, bool updates, ExportedGraphs* exported) {
    ExportedGraph graph{.path = path, .updates = updates};
    std::string bytes;
    const GraphKind kind = updates ? GraphKind::kUpdate : GraphKind::kGradients;
    if (config_.batch_size == 0 && options_.fixed_batch == 0) {
      auto free = SerializeForAnyBatch(kind);
      if (!free.ok() && !absl::IsInvalidArgument(free.status())) return free.status();
      graph.why = ToStd(free.status().message());
      if (free.ok()) bytes = *std::move(free);
    }
    const std::string& places = data_.train.bound.sample_index_input;
    if (options_.fixed_batch != 0)
      graph.why =
          places.empty() ? DescribeFixedBatch(options_.fixed_batch) : DescribePlaces(places, options_.fixed_batch);
    if (bytes.empty()) {
      graph.batch = options_.micro_batch;
      ASSIGN_OR_RETURN(bytes, Serialize(kind, graph.batch));
    }
    if (updates && config_.training_info) {
      ASSIGN_OR_RETURN(bytes, WriteTrainingInfo(bytes, graph.batch));
    }
    ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span(bytes))));
    exported->graphs.push_back(std::move(graph));
    return file.Commit();
  }

 private:
  absl::Status CheckWeights(const Graph& graph) const {
    const std::string given = config_.checkpoint.empty() ? StrCat("`weights` ", config_.weights, ": ")
                                                         : StrCat("`checkpoint` ", config_.checkpoint, ": ");
    bool found = weights_.empty();
    for (const auto& [name, value] : weights_) {
      const GraphInput* input = graph.FindInput(name);
      if (input == nullptr) continue;
      if (const Shape& shape = graph.type(input->value).shape; shape != value.shape())
        return Invalid(given, "'", name, "' is ", ToString(value.shape()), ", the model has ", ToString(shape));
      found = true;
    }
    return found ? absl::OkStatus() : Invalid(given, "holds no weight of the model");
  }

  absl::Status ChooseUpdate(const PreparedModel& look, ExportedGraphs* exported) {
    ASSIGN_OR_RETURN(const OptimizerChoice choice,
                     ChooseOptimizer(config_, config_.lr, *data_.model, look, data_.fresh, options_.micro_batch, 0));
    repeatable_ = look.model.state_updates.empty() && look.model.random_key.empty();
    update_.optimizer = choice.spec;
    update_.optimizer.output_axes = OutputAxes(look.model.graph);
    update_.optimizer.tables = FindTables(look.model);
    ASSIGN_OR_RETURN(const auto groups, GroupWeights(choice.spec, look.weights));
    for (const WeightGroup& group : groups) {
      for (const WeightDecision* weight : group.members) rules_[weight->name] = group.rule;
    }
    if (rules_.empty()) return Invalid("nothing to train: no weight is trainable");
    exported->notes.push_back(StrCat("learning rate ", FormatNumber(choice.spec.lr), choice.rate_text));
    exported->notes.insert(exported->notes.end(), choice.rate_lines.begin(), choice.rate_lines.end());
    return absl::OkStatus();
  }

  // Serializes the graph for batches of `batch`; 0: any batch.
  absl::StatusOr<std::string> SerializeFor(GraphKind kind, int64_t batch) {
    return batch == 0 ? SerializeForAnyBatch(kind) : Serialize(kind, batch);
  }

  // Writes the inference model with the training step as its algorithm: in operators of ai.onnx.preview.training if
  // they are equivalent, else in standard ones.
  absl::StatusOr<std::string> WriteTrainingInfo(const std::string& step, int64_t batch) {
    ASSIGN_OR_RETURN(const std::string inference, SerializeFor(GraphKind::kInference, batch));
    if (const auto update = MakePreviewUpdate(update_.optimizer, rules_); update.has_value() && repeatable_) {
      ASSIGN_OR_RETURN(const std::string gradients, SerializeFor(GraphKind::kGradients, batch));
      ASSIGN_OR_RETURN(const auto bytes, AddPreviewTraining(inference, gradients, *update, Settings()));
      if (bytes.has_value()) return *bytes;
    }
    return AddTrainingInfo(inference, step, Settings());
  }

  // Returns the settings of the algorithm as metadata, so that this project can train the model again.
  std::pair<std::string, std::string> Settings() const {
    TrainConfig config = config_;
    if (config.lr.empty()) config.lr = {StrCat(update_.optimizer.lr)};
    std::vector<std::string> trained;
    for (const auto& [name, rule] : rules_) trained.push_back(name);
    return {kTrainingSettings, ToTrainingSettings(config, trained)};
  }

  absl::StatusOr<Graph> Build(GraphKind kind, const PreparedModel& prepared, int64_t batch) const {
    const ImportedModel& model = prepared.model;
    if (kind == GraphKind::kUpdate)
      return BuildUpdateGraph(model, prepared.loss, options_.loss, batch, update_, rules_);
    if (kind == GraphKind::kGradients)
      return BuildGradientGraph(model, prepared.loss, options_.loss, batch, config_.input_gradients);
    Graph graph = model.graph;
    graph.ClearOutputs();
    for (const std::string& name : model.outputs) graph.AddOutput(name, model.graph.FindOutput(name)->value);
    return graph;
  }

  absl::StatusOr<std::string> Serialize(GraphKind kind, int64_t batch) {
    const bool training = kind != GraphKind::kInference;
    ASSIGN_OR_RETURN(const PreparedModel prepared,
                     models_.Prepare(MakePrepareOptions(options_), batch, training, true));
    ASSIGN_OR_RETURN(const Graph graph, Build(kind, prepared, batch));
    return SerializeGraph(graph, Defaults(prepared.model, graph));
  }

  absl::StatusOr<std::string> SerializeForAnyBatch(GraphKind kind) {
    std::vector<SizedModel> models;
    for (const int64_t batch : kSampleBatches) {
      ASSIGN_OR_RETURN(std::string bytes, Serialize(kind, batch));
      models.push_back({batch, std::move(bytes)});
    }
    return FreeBatch(models);
  }

  // Returns the default state: weights by name, averages equal to the weights, other state zero.
  Values Defaults(const ImportedModel& model, const Graph& graph) const {
    Values values;
    for (const ImportedWeight& weight : model.weights) {
      const auto other = weights_.find(weight.name);
      values.emplace(weight.name, other == weights_.end() ? weight.value : other->second);
    }
    for (const GraphInput& input : graph.inputs()) {
      if (input.kind != InputKind::kState || values.contains(input.name)) continue;
      const std::string averages = MomentName(kAverage, "");
      const bool average = input.name.starts_with(averages);
      values.emplace(input.name,
                     average ? values.at(input.name.substr(averages.size())) : HostTensor(graph.type(input.value)));
    }
    if (const GraphInput* rate = graph.FindInput(kRateFeed))
      values.emplace(kRateFeed, HostTensor::Scalar(graph.type(rate->value).dtype, update_.optimizer.lr));
    return values;
  }

  const TrainConfig& config_;
  const TrainingData data_;
  const Values& weights_;
  PreparedModels models_;
  SessionOptions options_;
  UpdateSpec update_;
  std::map<std::string, UpdateRule> rules_;
  bool repeatable_ = false;  // training computes the same outputs as inference
};

}  // namespace

absl::StatusOr<ExportedGraphs> ExportGraphs(const TrainConfig& given, std::shared_ptr<const OnnxModel> model,
                                            const Values& weights) {
  const TrainConfig config = given.training_graph.empty() ? given : WithTrainingSettings(given, *model);
  const unsigned makes = config.training_graph.empty() ? unsigned{kTaskGrad} : 0;
  RETURN_IF_ERROR(RefuseUnused(config, {.makes = makes, .has_data = !config.data.empty()}));
  const int64_t batch = GlobalBatchSize(config, *model);
  ASSIGN_OR_RETURN(TrainingData data, LoadTrainingData(config, std::move(model), {.batch = batch}));
  GraphExporter exporter(config, std::move(data), weights);
  ExportedGraphs exported;
  RETURN_IF_ERROR(exporter.Prepare(&exported));
  for (const auto& [path, updates] :
       {std::pair(config.gradient_graph, false), std::pair(config.training_graph, true)}) {
    if (path.empty()) continue;
    const absl::Status written = exporter.Write(path, updates, &exported);
    RETURN_IF_ERROR(Annotate(written, StrCat(config.model, ": ", updates ? "training" : "gradient", " graph: ")));
  }
  return exported;
}

}  // namespace onnxtrain
