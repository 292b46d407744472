#include "optim/step/prepared_models.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "frontend/base/status.h"
#include "frontend/onnx/import.h"
#include "frontend/passes/pipeline.h"
#include "optim/step/fixed_tables.h"
#include "optim/step/logits.h"
#include "optim/step/separate_samples.h"

namespace onnxtrain {
namespace {

// Names that begin with "$" are reserved for values that training adds to a graph.
absl::Status CheckNames(const ImportedModel& model) {
  std::vector<std::string> names = model.outputs;
  for (const GraphInput& input : model.graph.inputs()) names.push_back(input.name);
  for (const std::string& name : names) {
    if (name.starts_with("$"))
      return Invalid("'", name, "': names of inputs, outputs and weights must not begin with '$'");
  }
  return absl::OkStatus();
}

// Returns the options of an import at this batch and mode. A loss may read an internal value; nodes after it are
// dropped.
absl::StatusOr<ImportOptions> ResolveImport(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                            bool training) {
  ImportOptions import = options.import;
  import.batch = options.loss.pairs ? 2 * batch : batch;
  import.training = training;
  ASSIGN_OR_RETURN(import.outputs, LossOutputs(model, options.loss));
  import.negated = options.loss.negated;
  return import;
}

absl::StatusOr<ImportedModel> MakeForward(ImportedModel imported, const PackedInputs& packed) {
  ASSIGN_OR_RETURN(imported.graph, Canonicalize(std::move(imported.graph)));
  if (!packed.tokens.empty()) {
    ASSIGN_OR_RETURN(imported.graph, SeparateSamples(imported.graph, packed));
  }
  ExposeLogits(&imported);
  return imported;
}

}  // namespace

absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                              bool training) {
  ASSIGN_OR_RETURN(ImportOptions import, ResolveImport(model, options, batch, training));
  for (auto& [name, shape] : import.input_shapes) std::replace(shape.begin(), shape.end(), int64_t{-1}, import.batch);
  ASSIGN_OR_RETURN(ImportedModel imported, Import(model, import));
  RETURN_IF_ERROR(Annotate(CheckNames(imported), StrCat(model.path(), ": ")));
  return imported;
}

absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                            bool training) {
  ASSIGN_OR_RETURN(ImportedModel imported, ImportAsWritten(model, options, batch, training));
  return MakeForward(std::move(imported), options.import.packed);
}

namespace {

// With a frozen scale, batch statistics would drift away from it. Constants, the ones that exporters write for a
// normalization without weights, are nothing that somebody has frozen.
std::set<std::string> FrozenScales(const Graph& graph, const std::vector<WeightDecision>& weights) {
  std::set<std::string> names, constants;
  for (const WeightDecision& weight : weights) {
    if (weight.reason == WeightReason::kConstant) constants.insert(weight.name);
  }
  for (const Node& node : graph.nodes()) {
    if (node.op != "BatchNorm" || !graph.IsInput(node.inputs[1])) continue;
    const GraphInput& scale = graph.inputs()[graph.value(node.inputs[1]).index];
    if (scale.kind == InputKind::kFrozen && !constants.contains(scale.name)) names.insert(scale.name);
  }
  return names;
}

// Trained weights become floats, whatever the file stores.
std::set<std::string> TrainedHalves(const std::vector<WeightDecision>& weights) {
  std::set<std::string> names;
  for (const WeightDecision& weight : weights) {
    if (weight.trained && DTypeSize(weight.type.dtype) == 2) names.insert(weight.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<PreparedModel> ChooseWeights(const PrepareOptions& options, const ImportForwardFn& import,
                                            FixedTables* tables) {
  PreparedModel prepared;
  const auto choose = [&](const PrepareOptions& o) -> absl::Status {
    ASSIGN_OR_RETURN(prepared.model, import(o));
    ASSIGN_OR_RETURN(prepared.weights, ChooseTrainable(&prepared.model, o.trainable, tables));
    return EmbedFixedMasks(&prepared.model);
  };
  RETURN_IF_ERROR(choose(options));
  PrepareOptions chosen = options;
  chosen.import.frozen_scales = FrozenScales(prepared.model.graph, prepared.weights);
  std::set<std::string> halves;
  if (!options.import.half_weights) halves = TrainedHalves(prepared.weights);
  chosen.import.float_weights.insert(halves.begin(), halves.end());
  if (chosen.import.frozen_scales.empty() && halves.empty()) return prepared;
  RETURN_IF_ERROR(choose(chosen));
  prepared.float_weights = std::move(chosen.import.float_weights);
  return prepared;
}

absl::StatusOr<PreparedModel> PrepareWeights(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                             bool training) {
  FixedTables tables;
  const auto import = [&](const PrepareOptions& o) { return ImportForward(model, o, batch, training); };
  return ChooseWeights(options, import, &tables);
}

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                      bool training) {
  ASSIGN_OR_RETURN(PreparedModel prepared, PrepareWeights(model, options, batch, training));
  ASSIGN_OR_RETURN(prepared.loss, ChooseLoss(prepared.model, options.loss, options.labels));
  return prepared;
}

namespace {

constexpr size_t kMaxEntries = 16, kMaxBatched = 4;  // 4: both modes, with and without frozen scales
constexpr int64_t kMostSmall = 16, kLargestFixed = 1024, kMostTried = 32;  // batches
constexpr int64_t kMostNodesImported = 200'000;                            // by all trials of a search for a batch
constexpr size_t kMaxCopiedBytes = size_t{1} << 20;                        // of an entry that keeps copied values

}  // namespace

// Returns the model with these options for any batch. Chooses training where inference has the same graph.
BatchedModel& PreparedModels::FindBatched(ImportOptions* import) {
  const auto find = [&](bool training) {
    ImportOptions any = *import;
    any.batch = 0;
    any.training = training;
    return std::ranges::find(batched_, any, &BatchedModel::options);
  };
  if (const auto training = find(true); training != batched_.end() && training->same_in_both_modes())
    import->training = true;
  if (const auto found = find(import->training); found != batched_.end()) {
    batched_.splice(batched_.begin(), batched_, found);
    return *found;
  }
  if (batched_.size() == kMaxBatched) batched_.pop_back();
  ImportOptions any = *import;
  any.batch = 0;
  return batched_.emplace_front(model_, std::move(any));
}

absl::StatusOr<std::shared_ptr<const ImportedModel>> PreparedModels::ImportForward(const PrepareOptions& options,
                                                                                   int64_t batch, bool training,
                                                                                   bool values) {
  ASSIGN_OR_RETURN(ImportOptions import, ResolveImport(*model_, options, batch, training));
  BatchedModel& batched = FindBatched(&import);
  const auto found = std::ranges::find(entries_, import, &Entry::import);
  if (found != entries_.end() && (found->has_values || !values)) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->model;
  }
  const int64_t before = batched.imports();
  auto at_batch = batched.At(import.batch, values);
  imports_ += batched.imports() - before;
  const bool has_values = batched.imports() > before || batched.has_values();
  ASSIGN_OR_RETURN(ImportedModel imported, std::move(at_batch));
  RETURN_IF_ERROR(Annotate(CheckNames(imported), StrCat(model_->path(), ": ")));
  ASSIGN_OR_RETURN(imported, MakeForward(std::move(imported), options.import.packed));
  if (found != entries_.end()) entries_.erase(found);
  if (entries_.size() == kMaxEntries) entries_.pop_back();
  entries_.push_front({std::move(import), has_values, std::make_shared<ImportedModel>(std::move(imported))});
  if (!values) {
    ReleaseValues(&entries_.front());
    ReleaseValues(&batched);
  }
  return entries_.front().model;
}

absl::StatusOr<PreparedModel> PreparedModels::PrepareWeights(const PrepareOptions& options, int64_t batch,
                                                             bool training, bool values) {
  const auto import = [&](const PrepareOptions& o) -> absl::StatusOr<ImportedModel> {
    ASSIGN_OR_RETURN(const auto imported, ImportForward(o, batch, training, values));
    return *imported;
  };
  return ChooseWeights(options, import, &tables_);
}

absl::StatusOr<PreparedModel> PreparedModels::Prepare(const PrepareOptions& options, int64_t batch, bool training,
                                                      bool values) {
  ASSIGN_OR_RETURN(PreparedModel prepared, PrepareWeights(options, batch, training, values));
  ASSIGN_OR_RETURN(prepared.loss, ChooseLoss(prepared.model, options.loss, options.labels));
  return prepared;
}

int64_t PreparedModels::FindFixedBatch(const PrepareOptions& options, const absl::Status& failure, bool training) {
  const std::vector<NodeFailure> failed = GetImportFailures(failure);
  if (failed.empty()) return 0;
  std::set<int64_t> batches;
  for (const NodeFailure& node : failed) {
    if (node.extents.empty()) return 0;
    std::ranges::copy_if(node.extents, std::inserter(batches, batches.end()),
                         [](int64_t extent) { return extent > kMostSmall && extent <= kLargestFixed; });
  }
  for (int64_t batch = 2; batch <= kMostSmall; ++batch) batches.insert(batch);
  int64_t left = std::min(kMostTried, kMostNodesImported / std::max<int64_t>(std::ssize(model_->nodes()), 1));
  for (const int64_t batch : batches) {
    if (left-- <= 0) return 0;
    if (ImportForward(options, batch, training, false).ok()) return batch;
  }
  return 0;
}

// Counts only copied values: a value that shares the model's bytes takes no memory.
size_t PreparedModels::CopiedBytes(const std::vector<ImportedWeight>& weights) const {
  size_t bytes = 0;
  for (const ImportedWeight& weight : weights) {
    const HostTensor* stored = model_->Initializer(weight.name);
    const bool shared = stored != nullptr && stored->bytes().data() == weight.value.bytes().data();
    if (!shared) bytes += weight.value.bytes().size();
  }
  return bytes;
}

void PreparedModels::KeepSize(int64_t batch) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.import.batch != batch; });
}

void PreparedModels::ReleaseValues() {
  recompute_memo_.Clear();
  for (Entry& entry : entries_) ReleaseValues(&entry);
  for (BatchedModel& batched : batched_) ReleaseValues(&batched);
}

// Callers may hold the model: it is then replaced, not changed.
void PreparedModels::ReleaseValues(Entry* entry) {
  if (!entry->has_values || CopiedBytes(entry->model->weights) <= kMaxCopiedBytes) return;
  if (entry->model.use_count() > 1) entry->model = std::make_shared<ImportedModel>(*entry->model);
  DropCopies(&entry->model->weights);
  entry->has_values = false;
}

void PreparedModels::ReleaseValues(BatchedModel* batched) {
  batched->ReleaseValues([&](std::vector<ImportedWeight>* weights) {
    const bool large = CopiedBytes(*weights) > kMaxCopiedBytes;
    if (large) DropCopies(weights);
    return large;
  });
}

// Keeps tables, which only their values tell from weights.
void PreparedModels::DropCopies(std::vector<ImportedWeight>* weights) {
  for (ImportedWeight& weight : *weights) {
    if (tables_.Find(weight) == FixedTable::kNone) weight.value = HostTensor();
  }
}

}  // namespace onnxtrain
