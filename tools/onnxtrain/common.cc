#include "tools/onnxtrain/common.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "backends/registry.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/loss_text.h"
#include "optim/onnx_loss.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/natural_inputs.h"

namespace onnxtrain::cli {
namespace {

bool IsTableFile(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".tsv") || path.ends_with(".csv.gz") || path.ends_with(".tsv.gz");
}

absl::Status CheckDevice(const std::string& device, const std::string& backend) {
  const bool cuda = device == "cuda" || (device.starts_with("cuda:") && ParseInt(device.substr(5)).ok());
  if (device != "auto" && device != "cpu" && !cuda)
    return Invalid("--device: expected auto, cpu or cuda:N, got '", device, "'");
  if (cuda && backend == "cpu") return Invalid("--device ", device, ": --backend cpu runs on the CPU only");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> LoadTorch(BackendOptions options) {
  if (FLAGS_device == "auto" && std::filesystem::exists("/dev/nvidia0")) {
    options.device = "cuda:0";
    auto backend = CreateBackend("torch", options);
    if (backend.ok()) return backend;
  }
  options.device = FLAGS_device == "auto" ? "cpu" : FLAGS_device == "cuda" ? "cuda:0" : FLAGS_device;
  return CreateBackend("torch", options);
}

}  // namespace

void Say(const std::string& text) {
  if (!FLAGS_quiet) std::fputs((text + "\n").c_str(), stderr);
}

void Warn(const std::string& text) { std::fputs(StrCat("onnxtrain: warning: ", text, "\n").c_str(), stderr); }

int Failed(const absl::Status& status) {
  std::fputs(StrCat("onnxtrain: failed: ", ToStd(status.message()), "\n").c_str(), stderr);
  return kFailed;
}

absl::Status Print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return absl::OkStatus();
  return errno == EPIPE ? absl::OkStatus() : Invalid("stdout: ", std::strerror(errno));
}

absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel() {
  if (FLAGS_model.empty()) return Invalid("--model: missing (which .onnx file?)");
  return OnnxModel::Load(FLAGS_model);
}

// Before data is bound to inputs of which an operator that nobody can run may have strange ones.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadKnownModel() {
  ASSIGN_OR_RETURN(auto model, LoadModel());
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(*model, {.name = FLAGS_loss, .logits = FLAGS_logits}));
  RETURN_IF_ERROR(CheckOperators(*model, outputs));
  return model;
}

absl::StatusOr<std::map<std::string, int64_t>> DimFlags(const OnnxModel& model) {
  std::map<std::string, int64_t> dims;
  for (const std::string& text : Values("dim")) {
    const auto pair = ParsePair(text, "NAME=N");
    const auto value = pair.ok() ? ParseInt(pair->second) : absl::StatusOr<int64_t>(pair.status());
    if (!value.ok() || *value < 1) return Invalid("--dim: expected NAME=N with N of at least 1, got '", text, "'");
    std::string known;
    bool found = false;
    for (const auto& input : model.inputs()) {
      for (const std::string& name : input.dim_names) {
        found |= name == pair->first;
        if (!name.empty() && known.find("'" + name + "'") == std::string::npos) StrAppend(&known, " '", name, "'");
      }
    }
    if (!found)
      return Invalid("--dim ", text, ": no input has a dimension of that name; there are",
                     known.empty() ? " none" : known);
    if (!dims.emplace(pair->first, *value).second) return Invalid("--dim ", pair->first, ": given twice");
  }
  return dims;
}

namespace {

absl::StatusOr<std::vector<double>> ClassWeightFlag() {
  std::vector<double> weights;
  if (!Given("class_weights")) return weights;
  ASSIGN_OR_RETURN(const std::vector<std::string> parts, ParseList(FLAGS_class_weights));
  for (const std::string& part : parts) {
    const auto weight = ParseNumber(part);
    if (!weight.ok() || !(*weight >= 0 && *weight < 1e30)) return Invalid("--class-weights: expected numbers of at least 0, got '", part, "'");
    weights.push_back(*weight);
  }
  return weights;
}

}  // namespace

absl::StatusOr<LossSpec> LossFlags(const OnnxModel& model, const std::optional<Preprocess>& before) {
  LossSpec spec{.name = FLAGS_loss,
                .logits = FLAGS_logits,
                .ignore_index = FLAGS_ignore_index,
                .label_smoothing = FLAGS_label_smoothing};
  ASSIGN_OR_RETURN(spec.class_weights, ClassWeightFlag());
  if (!Given("loss") && !Given("logits") && before.has_value() && !before->loss.empty()) {
    spec.name = before->loss;
    const auto& outputs = model.outputs();
    if (std::find(outputs.begin(), outputs.end(), before->output) != outputs.end() &&
        !spec.name.starts_with("output:")) {
      spec.logits = before->output;
    }
  }
  RETURN_IF_ERROR(LoadOnnxLosses(&spec));
  return spec;
}

TrainableSpec TrainableFlags() { return {.train = Values("train"), .freeze = Values("freeze")}; }

absl::StatusOr<ImportOptions> ImportFlags(const OnnxModel& model) {
  const std::map<std::string, int> ops = model.op_histogram();
  ImportOptions import;
  ASSIGN_OR_RETURN(import.dim_values, DimFlags(model));
  import.fixed_inputs = FindNaturalInputs(model.inputs()).fixed;
  import.batch_norm_frozen = FLAGS_batch_norm == "frozen";
  if (Given("batch_norm") && !ops.contains("BatchNormalization")) {
    return Invalid("--batch-norm: the model has no BatchNormalization nodes");
  }
  if (!Given("dropout")) return import;
  if (!ops.contains("Dropout")) return Invalid("--dropout: the model has no Dropout nodes");
  import.dropout = FLAGS_dropout;
  return import;
}

int64_t FixedBatch(const OnnxModel& model) {
  int64_t batch = 0;
  for (const auto& input : model.inputs()) {
    if (!input.has_shape || input.dims.empty()) continue;
    if (input.dims[0] < 2 || (batch != 0 && batch != input.dims[0])) return 1;
    batch = input.dims[0];
  }
  return std::max<int64_t>(batch, 1);
}

int64_t BatchFlag(const OnnxModel& model) {
  const int64_t fixed = FixedBatch(model);
  return Given("batch_size") || fixed == 1 ? FLAGS_batch_size : fixed;
}

double MaxGradNorm() {
  const bool otherwise = FLAGS_clip_value > 0 || FLAGS_agc > 0;
  return otherwise && !Given("max_grad_norm") ? 0 : FLAGS_max_grad_norm;
}

int ComputeThreads() { return ChooseThreads(static_cast<int>(FLAGS_threads)); }

absl::StatusOr<int> WorkerThreads() {
  if (FLAGS_num_workers == "auto") return std::clamp(CpuCount() / 4, 1, 4);
  const auto n = ParseInt(FLAGS_num_workers);
  if (!n.ok() || *n < 0 || *n > 1024)
    return Invalid("--num-workers: expected auto or 0 to 1024, got '", FLAGS_num_workers, "'");
  if (*n == 0 && Given("prefetch_factor")) return Invalid("--prefetch-factor: has no effect with --num-workers 0");
  return static_cast<int>(*n);
}

absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const std::string& name) {
  RETURN_IF_ERROR(CheckDevice(FLAGS_device, name));
  const int threads = ComputeThreads();
  SetEnvironment(threads);
  const BackendOptions options{.device = "cpu", .threads = threads};
  if (name == "cpu" || (name == "auto" && FLAGS_device == "cpu")) return CreateBackend("cpu", options);
  if (name == "torch" || FLAGS_device != "auto") return LoadTorch(options);
  return CreateBackend("auto", options);
}

std::string DescribeBackend(const Backend& backend) {
  std::string text = backend.description();
  const std::string prefix = backend.name() + ": ";
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  return StrCat(backend.name(), " on ", backend.device(), ": ", text);
}

namespace {

// The data set, opened again where a label column by name turns out not to be the one that the format takes by default.
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

// The columns that a file of other origin lacks are found anew.
void DropMissing(const Dataset& dataset, BindSpec* spec) {
  const auto has = [&](const std::string& name) {
    return std::any_of(dataset.columns().begin(), dataset.columns().end(),
                       [&](const Column& c) { return c.name == name; });
  };
  std::erase_if(spec->inputs,
                [&](const auto& entry) { return !std::all_of(entry.second.begin(), entry.second.end(), has); });
  if (!std::all_of(spec->label.begin(), spec->label.end(), has)) spec->label.clear();
}

absl::Status AddInputFlags(BindSpec* spec) {
  std::map<std::string, std::vector<std::string>> given;
  for (const std::string& text : Values("input")) {
    auto pair = ParsePair(text, "MODEL_INPUT=COLUMN[,…]");
    if (!pair.ok()) return Annotate(pair.status(), "--input: ");
    auto columns = ParseList(pair->second);
    if (!columns.ok()) return Annotate(columns.status(), StrCat("--input ", text, ": "));
    if (!given.emplace(pair->first, *columns).second) return Invalid("--input ", pair->first, ": given twice");
  }
  for (auto& [input, columns] : given) spec->inputs[input] = std::move(columns);
  return absl::OkStatus();
}

// Inputs of the loss that are columns; the others must stand for the label.
void AddOnnxColumns(const OnnxModel& loss, const OnnxModel& model, const std::vector<Column>& columns, BindSpec* spec) {
  for (const std::string& name : OnnxLossColumns(loss, model)) {
    const bool column = std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
    if (column) spec->own_labels[name] = {name};
    spec->want_label |= !column && MeansLabel(name);
  }
}

// What single losses want for labels of their own; where all do, no common label is looked for.
absl::Status AddOwnLabels(const LossSpec& loss, const OnnxModel& model, const std::vector<Column>& columns, BindSpec* spec) {
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

}  // namespace

Header HeaderKind() { return FLAGS_header == "yes" ? Header::kYes : FLAGS_header == "no" ? Header::kNo : Header::kAuto; }

namespace {

absl::StatusOr<Header> HeaderFlag(const std::string& path) {
  if (Given("header") && !IsTableFile(path)) return Invalid("--header: ", path, " is no table of text");
  return HeaderKind();
}

std::string NormalizeOf(const std::optional<Preprocess>& before) {
  if (!Given("normalize") && before.has_value() && !before->normalize.empty()) return before->normalize;
  return FLAGS_normalize;
}

}  // namespace

absl::StatusOr<OpenedData> OpenData(const OnnxModel& model, const std::optional<Preprocess>& before,
                                    const DataRequest& request, const LossSpec& loss) {
  BindSpec spec{.want_label = request.want_label, .ignore_index = loss.ignore_index, .leave_out = request.leave_out};
  ASSIGN_OR_RETURN(spec.dims, DimFlags(model));
  if (before.has_value()) {
    spec.inputs = before->inputs;
    spec.label = before->label;
  }
  DatasetOptions options{.label = spec.label, .eval_split = request.eval_split};
  ASSIGN_OR_RETURN(options.header, HeaderFlag(request.path));
  if (request.want_label && before.has_value()) options.class_names = before->classes;
  if (Given("label")) {
    auto label = ParseList(FLAGS_label);
    if (!label.ok()) return Annotate(label.status(), "--label: ");
    options.label = *label;
  }
  auto dataset = OpenWithLabel(request, options, Given("label"));
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat("--", request.flag, ": "));
  if (request.want_label) RETURN_IF_ERROR(AddOwnLabels(loss, model, (*dataset)->columns(), &spec));
  OpenedData opened{.own_columns = static_cast<int>((*dataset)->columns().size())};
  DropMissing(**dataset, &spec);
  if (Given("label")) spec.label = options.label;
  RETURN_IF_ERROR(AddInputFlags(&spec));
  const std::string normalize = NormalizeOf(before);
  auto pixels = ParseNormalize(normalize);
  if (!pixels.ok()) return Annotate(pixels.status(), "--normalize: ");
  spec.pixels = *pixels;
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  const std::vector<OnnxModel::Input> needed = NeededInputs(model, outputs);
  const NaturalInputs natural = FindNaturalInputs(needed, [&](const std::string& name) {
    const auto& columns = (*dataset)->columns();
    return spec.inputs.contains(name) || std::ranges::any_of(columns, [&](const Column& c) { return c.name == name; });
  });
  auto bound = BindData(WithoutFixed(needed, natural), *std::move(dataset), spec);
  if (!bound.ok()) return Annotate(bound.status(), StrCat(request.path, ": "));
  opened.bound = *std::move(bound);
  opened.bound.fixed_inputs = natural.fixed;
  opened.bound.notes.insert(opened.bound.notes.end(), natural.notes.begin(), natural.notes.end());
  if (opened.bound.has_images) opened.normalize = normalize;
  if (Given("normalize") && !opened.bound.has_images) {
    return Invalid("--normalize: has no effect: ", request.path, " feeds no 8-bit images");
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

absl::StatusOr<SessionOptions> MakeSessionOptions(const OnnxModel& model, const BoundData& data, const LossSpec& loss,
                                                  int64_t micro_batch) {
  SessionOptions options{.loss = loss,
                         .labels = data.label.info,
                         .trainable = TrainableFlags(),
                         .micro_batch = micro_batch,
                         .seed = static_cast<uint64_t>(FLAGS_seed)};
  if (Given("metrics")) {
    auto metrics = ParseList(FLAGS_metrics);
    if (!metrics.ok()) return Annotate(metrics.status(), "--metrics: ");
    options.metrics = *std::move(metrics);
  }
  for (const auto& [key, label] : data.own_labels) options.loss.own_labels[key] = label.info;
  ASSIGN_OR_RETURN(options.import, ImportFlags(model));
  options.import.input_shapes = data.input_shapes;
  options.import.fixed_inputs = data.fixed_inputs;
  return options;
}

absl::StatusOr<PreparedModel> PrepareFor(const OnnxModel& model, const BoundData& data, const SessionOptions& options,
                                         bool training) {
  const PrepareOptions prepare{options.import, options.loss, options.labels, options.trainable};
  ASSIGN_OR_RETURN(PreparedModel prepared, PrepareWeights(model, prepare, options.micro_batch, training));
  auto loss = ChooseLoss(prepared.model, options.loss, options.labels);
  if (!loss.ok() && !data.label.text.empty())
    return Invalid(ToStd(loss.status().message()), " (", data.label.text, ")");
  ASSIGN_OR_RETURN(prepared.loss, std::move(loss));
  RETURN_IF_ERROR(CheckLossBatch(prepared.model.graph, prepared.loss, options.micro_batch));
  return prepared;
}

absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const LossChoice& loss, int64_t ignore_index) {
  TrainData train{.dataset = data.dataset, .specs = data.feeds};
  for (const LossFeed& feed : loss.feeds) {
    const BoundLabel* label = LabelOf(data, feed);
    if (label == nullptr && feed.label.empty()) {
      return Invalid("loss ", loss.name, " needs labels, but the data has no label column; name one with --label");
    }
    if (label == nullptr) return Invalid("loss ", loss.name, " needs a column '", feed.label, "', which the data does not have");
    for (int c : label->columns) {
      if (feed.num_classes > 0) RETURN_IF_ERROR(CheckLabels(*data.dataset, c, feed.num_classes, ignore_index));
    }
    train.specs.push_back({.feed = feed.name, .columns = label->columns, .sample = feed.sample});
  }
  return train;
}

absl::StatusOr<Window> ReadWindow(const TrainData& data, int64_t count) {
  const int64_t n = std::min(count, data.dataset->size());
  ASSIGN_OR_RETURN(auto loader, Loader::Create(data.dataset, data.specs, {.batch_size = n, .num_workers = 0}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Batch> batch, loader->Next());
  if (batch == nullptr) return Invalid("the data holds no samples");
  Window window;
  for (size_t i = 0; i < data.specs.size(); ++i) {
    Put(data.specs[i].feed, batch->tensors[i], &window);
  }
  return window;
}

std::string LossTakes(const LossChoice& loss) {
  std::string takes;
  for (const LossTerm& term : loss.terms) {
    if (term.form != LabelForm::kElements) StrAppend(&takes, term.function->takes, " ");
  }
  return takes;
}

absl::Status CheckLossFlags(const LossChoice& loss) {
  const std::string takes = LossTakes(loss);
  for (const char* flag : {"label_smoothing", "ignore_index", "class_weights"}) {
    if (Given(flag) && takes.find(flag) == std::string::npos) return Invalid(Shown(flag), ": has no effect on loss ", loss.name);
  }
  return absl::OkStatus();
}

std::string DescribeModel(const OnnxModel& model) {
  const auto opsets = model.opsets();
  const auto opset = opsets.find("");
  std::string text = model.path();
  if (!model.producer().empty()) StrAppend(&text, ", by ", model.producer());
  if (opset != opsets.end()) StrAppend(&text, ", opset ", opset->second);
  return text;
}

}  // namespace onnxtrain::cli
