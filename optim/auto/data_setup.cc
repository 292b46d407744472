#include "optim/auto/data_setup.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/auto/batch_axes.h"
#include "optim/auto/default_inputs.h"
#include "optim/auto/model_setup.h"
#include "optim/auto/surgery.h"
#include "optim/loss_text.h"
#include "optim/onnx_loss.h"

namespace onnxtrain {
namespace {

// Opens the data set, and again where the label column by name is not the one that the format takes by default.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenWithLabel(const DataRequest& request, DatasetOptions options,
                                                             bool label_known) {
  const bool explicit_label = !options.label.empty();
  auto dataset = OpenDataset(request.path, options);
  if (!dataset.ok() && explicit_label && !label_known && absl::IsNotFound(dataset.status())) {
    options.label.clear();
    options.class_names.clear();
    return OpenDataset(request.path, options);
  }
  if (!dataset.ok() || explicit_label || !IsTableFile(request.path)) return dataset;
  const std::vector<Column>& columns = (*dataset)->columns();
  ASSIGN_OR_RETURN(const std::optional<int> named, LabelByName(columns));
  const auto last = static_cast<int>(columns.size()) - 1;
  const int label = named.value_or(last > 0 && columns[last].name == request.leave_out ? last - 1 : last);
  if (label == last) return dataset;
  options.label = {columns[label].name};
  return OpenDataset(request.path, options);
}

// Drops bindings to columns that the file lacks: they are inferred again.
void DropMissing(const Dataset& dataset, BindSpec* spec) {
  const auto has = [&](const std::string& name) {
    return std::any_of(dataset.columns().begin(), dataset.columns().end(),
                       [&](const Column& c) { return c.name == name; });
  };
  std::erase_if(spec->inputs,
                [&](const auto& entry) { return !std::all_of(entry.second.begin(), entry.second.end(), has); });
  if (!std::all_of(spec->label.begin(), spec->label.end(), has)) spec->label.clear();
}

// Explicit bindings replace those of preprocess.json.
absl::Status AddInputs(const std::vector<std::string>& texts, const std::map<std::string, std::string>& constants,
                       BindSpec* spec) {
  std::map<std::string, std::vector<std::string>> given;
  for (const std::string& text : texts) {
    auto pair = ParsePair(text, "MODEL_INPUT=COLUMN[,…]");
    if (!pair.ok()) return Annotate(pair.status(), "`input`: ");
    if (constants.contains(pair->first)) continue;
    auto columns = ParseList(pair->second);
    if (!columns.ok()) return Annotate(columns.status(), StrCat("`input` ", text, ": "));
    if (!given.emplace(pair->first, *columns).second) return Invalid("`input` ", pair->first, ": given twice");
  }
  for (auto& [input, columns] : given) spec->inputs[input] = std::move(columns);
  return absl::OkStatus();
}

// Samples feed no input that is the same for all of them.
absl::Status CheckFedInputs(const std::vector<OnnxModel::Input>& inputs, const BatchAxes& axes) {
  for (const OnnxModel::Input& input : inputs) {
    const auto axis = axes.find(input.name);
    const bool batchless = input.dims.empty() || (axis != axes.end() && axis->second == kNoBatchAxis);
    if (input.has_shape && batchless)
      return Invalid("input '", input.name, "' ", ToString(input.dtype),
                     " has no batch axis: it cannot be fed with samples; give it a constant (`input` ", input.name,
                     "=N or ", input.name, "=@FILE.npy)");
  }
  return absl::OkStatus();
}

// Binds inputs of the loss that are columns; the others must mean the label.
void AddOnnxColumns(const OnnxModel& loss, const OnnxModel& model, const std::vector<Column>& columns, BindSpec* spec) {
  for (const std::string& name : OnnxLossColumns(loss, model)) {
    const bool column = std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
    if (column) spec->own_labels[name] = {name};
    spec->want_label |= !column && MeansLabel(name);
  }
}

// Collects the labels of single terms; where every term has its own, no common label is inferred.
absl::Status AddOwnLabels(const LossSpec& loss, const OnnxModel& model, const std::vector<Column>& columns,
                          BindSpec* spec) {
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(loss.name));
  spec->want_label = false;
  for (const LossTermSpec& term : terms) {
    if (!term.file.empty()) {
      AddOnnxColumns(*loss.onnx.at(term.file), model, columns, spec);
      continue;
    }
    const bool of_its_own = !term.label.empty();
    if (of_its_own) spec->own_labels[term.label_key()] = term.label;
    spec->want_label |= !of_its_own;
  }
  return absl::OkStatus();
}

std::string ChooseNormalize(const TrainConfig& config, const std::optional<Preprocess>& before) {
  if (!config.normalize.empty()) return config.normalize;
  return before.has_value() && !before->normalize.empty() ? before->normalize : "unit";
}

}  // namespace

Header HeaderKind(const TrainConfig& config) {
  return config.header == "yes" ? Header::kYes : config.header == "no" ? Header::kNo : Header::kAuto;
}

bool IsTableFile(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".tsv") || path.ends_with(".csv.gz") || path.ends_with(".tsv.gz");
}

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss) {
  BindSpec spec{.want_label = request.want_label, .ignore_index = loss.ignore_index, .leave_out = request.leave_out};
  ASSIGN_OR_RETURN(spec.dims, ParseDims(config, model));
  if (before.has_value()) {
    spec.inputs = before->inputs;
    spec.label = before->label;
  }
  DatasetOptions options{.label = spec.label, .eval_split = request.eval_split};
  options.header = HeaderKind(config);
  if (IsSpecified(config, "header") && !IsTableFile(request.path))
    return Invalid("`header`: ", request.path, " is no table of text");
  if (request.want_label && before.has_value()) options.class_names = before->classes;
  if (!config.label.empty()) options.label = config.label;
  auto dataset = OpenWithLabel(request, options, !config.label.empty());
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat("`", request.field, "`: "));
  if (request.want_label) RETURN_IF_ERROR(AddOwnLabels(loss, model, (*dataset)->columns(), &spec));
  OpenedData opened{.own_columns = static_cast<int>((*dataset)->columns().size())};
  DropMissing(**dataset, &spec);
  if (!config.label.empty()) spec.label = config.label;
  const std::map<std::string, std::string> constants = FindConstantTexts(config, model);
  RETURN_IF_ERROR(AddInputs(config.input, constants, &spec));
  const std::string normalize = ChooseNormalize(config, before);
  auto pixels = ParseNormalize(normalize);
  if (!pixels.ok()) return Annotate(pixels.status(), "`normalize`: ");
  spec.pixels = *pixels;
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  const std::vector<OnnxModel::Input> needed = NeededInputs(model, outputs);
  DefaultInputs natural = FindDefaultInputs(needed, [&](const std::string& name) {
    const auto& columns = (*dataset)->columns();
    return spec.inputs.contains(name) || std::ranges::any_of(columns, [&](const Column& c) { return c.name == name; });
  });
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, model));
  for (const auto& [name, text] : constants) {
    const auto fixed = import.fixed_inputs.find(name);
    if (fixed == import.fixed_inputs.end()) continue;  // the outputs do not depend on it
    natural.fixed[name] = fixed->second;
    natural.notes.push_back(StrCat("input '", name, "' ← the constant ", text));
  }
  const std::vector<OnnxModel::Input> fed = MoveBatchFirst(WithoutFixed(needed, natural), import.batch_axes);
  RETURN_IF_ERROR(CheckFedInputs(fed, import.batch_axes));
  auto bound = BindData(fed, *std::move(dataset), spec);
  if (!bound.ok()) return Annotate(bound.status(), StrCat(request.path, ": "));
  opened.bound = *std::move(bound);
  opened.bound.fixed_inputs = natural.fixed;
  opened.bound.notes.insert(opened.bound.notes.end(), natural.notes.begin(), natural.notes.end());
  if (opened.bound.has_images) opened.normalize = normalize;
  if (IsSpecified(config, "normalize") && !opened.bound.has_images) {
    return Invalid("`normalize`: has no effect: ", request.path, " feeds no 8-bit images");
  }
  return opened;
}

bool HasEvalFiles(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().filename().string().starts_with("t10k-images")) return true;
  }
  return false;
}

absl::StatusOr<ModelAndData> OpenModelAndData(const TrainConfig& config, bool eval_split, bool want_label) {
  RETURN_IF_ERROR(Validate(config));
  ModelAndData opened;
  ASSIGN_OR_RETURN(opened.model, LoadRunnableModel(config));
  if (config.data.empty()) return Invalid("`data`: missing (which file of samples?)");
  ASSIGN_OR_RETURN(opened.before, ReadPreprocess(config.model));
  ASSIGN_OR_RETURN(opened.loss, MakeLossSpec(config, *opened.model, opened.before));
  const DataRequest request{.path = config.data,
                            .field = "data",
                            .eval_split = eval_split && HasEvalFiles(config.data),
                            .want_label = want_label};
  if (opened.before.has_value() && ChangesClasses(config)) opened.before->classes.clear(), opened.before->loss.clear();
  ASSIGN_OR_RETURN(opened.data, OpenData(config, *opened.model, opened.before, request, opened.loss));
  if (!HasSurgery(config)) return opened;
  ASSIGN_OR_RETURN(Surgery surgery,
                   ApplySurgery(config, std::move(opened.model), &opened.data.bound, opened.loss.logits));
  opened.model = std::move(surgery.model);
  opened.data.bound.notes.insert(opened.data.bound.notes.end(), surgery.lines.begin(), surgery.lines.end());
  if (!surgery.logits.empty()) opened.loss.logits = surgery.logits;
  return opened;
}

Preprocess DescribeBinding(const OpenedData& data) {
  Preprocess p{.normalize = data.normalize, .classes = data.bound.classes};
  const std::vector<Column>& columns = data.bound.dataset->columns();
  for (const FeedSpec& feed : data.bound.feeds) {
    for (int c : feed.columns) {
      if (c < data.own_columns) p.inputs[feed.feed].push_back(columns[c].name);
    }
    if (p.inputs.contains(feed.feed)) p.layout[feed.feed] = feed.sample.shape;
  }
  for (int c : data.bound.label.columns) p.label.push_back(columns[c].name);
  return p;
}

absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const LossChoice& loss, int64_t ignore_index) {
  TrainData train{.dataset = data.dataset, .specs = data.feeds};
  for (const LossFeed& feed : loss.feeds) {
    const BoundLabel* label = FindBoundLabel(data, feed.label);
    if (label == nullptr && feed.label.empty()) {
      return Invalid("loss ", loss.name, " needs labels, but the data has no label column; name one with `label`");
    }
    if (label == nullptr)
      return Invalid("loss ", loss.name, " needs a column '", feed.label, "', which the data does not have");
    for (int c : label->columns) {
      if (feed.num_classes > 0) RETURN_IF_ERROR(CheckLabels(*data.dataset, c, feed.num_classes, ignore_index));
    }
    train.specs.push_back({.feed = feed.name, .columns = label->columns, .sample = feed.sample});
  }
  return train;
}

absl::StatusOr<GlobalBatch> ReadGlobalBatch(const TrainData& data, int64_t count) {
  const int64_t n = std::min(count, data.dataset->size());
  ASSIGN_OR_RETURN(auto loader, Loader::Create(data.dataset, data.specs, {.batch_size = n, .num_workers = 0}));
  ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
  if (batch == nullptr) return Invalid("the data holds no samples");
  GlobalBatch global_batch(FeedNames(data.specs));
  SetTensors(*batch, &global_batch);
  return global_batch;
}

int NumWorkers(const TrainConfig& config) {
  if (config.num_workers == TrainConfig::kAuto) return std::clamp(CpuCount() / 4, 1, 4);
  return static_cast<int>(config.num_workers);
}

}  // namespace onnxtrain
