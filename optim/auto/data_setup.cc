#include "optim/auto/data_setup.h"

#include <algorithm>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/data/class_index.h"
#include "frontend/data/class_map.h"
#include "frontend/data/data_view.h"
#include "frontend/data/source.h"
#include "frontend/data/text/token_blocks.h"
#include "frontend/onnx/class_labels.h"
#include "optim/auto/audio_plan.h"
#include "optim/auto/batch_axes.h"
#include "optim/auto/cache_setup.h"
#include "optim/auto/default_inputs.h"
#include "optim/auto/image_plan.h"
#include "optim/auto/language_data.h"
#include "optim/auto/model_setup.h"
#include "optim/auto/open_samples.h"
#include "optim/auto/picture_folders.h"
#include "optim/auto/pixel_hints.h"
#include "optim/auto/surgery.h"
#include "optim/loss_text.h"
#include "optim/onnx_loss.h"

namespace onnxtrain {
namespace {

using Columns = std::vector<Column>;

bool HasColumn(const Columns& columns, const std::string& name) {
  return std::ranges::any_of(columns, [&](const Column& c) { return c.name == name; });
}

std::string ListColumns(const Columns& columns) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t c = 0; c < columns.size() && c < kMost; ++c) StrAppend(&text, c == 0 ? "'" : ", '", columns[c].name, "'");
  return columns.size() > kMost ? StrCat(text, ", … (", columns.size(), " in all)") : text;
}

// Reconciles the columns of the training data with a file. A single array needs no name. Columns that are not there are
// an error with `same_columns`; else all of their input, or the label, are inferred again.
absl::Status MatchColumns(const Columns& columns, const DataRequest& request, BindSpec* spec) {
  const auto match = [&](std::vector<std::string>* names, const std::string& what) -> absl::StatusOr<bool> {
    for (std::string& name : *names) {
      name = FindCounterpart(columns, name);
      if (HasColumn(columns, name)) continue;
      if (!request.same_columns || columns.size() == 1) return false;
      return Invalid("there is no column '", name, "', ", what, "; the columns are ", ListColumns(columns));
    }
    return true;
  };
  for (auto entry = spec->inputs.begin(); entry != spec->inputs.end();) {
    const std::string& input = entry->first;
    ASSIGN_OR_RETURN(const bool found,
                     match(&entry->second, StrCat("which input '", input, "' was trained on (`input` ", input,
                                                  "=COLUMN,… names others)")));
    entry = found ? std::next(entry) : spec->inputs.erase(entry);
  }
  ASSIGN_OR_RETURN(const bool labelled, match(&spec->label, "the label in training (`label` names another)"));
  if (!labelled) spec->label.clear();
  return absl::OkStatus();
}

// Are the labels classes, for all that is known before a loss is chosen?
bool LabelsAreClasses(const LossSpec& loss) {
  const auto terms = ParseLoss(loss.name);
  return terms.ok() && std::ranges::any_of(*terms, [](const LossTermSpec& term) {
           if (!term.file.empty() || !term.label.empty()) return false;
           return term.function == nullptr || term.function->classes || term.function->name == "bce";
         });
}

// Class names in the order of the scores: those of class_map, else of the training data, else of the model file.
absl::StatusOr<std::vector<std::string>> ChooseClasses(const TrainConfig& config, const OnnxModel& model,
                                                       const std::optional<Preprocess>& before,
                                                       const DataRequest& request, const LossSpec& loss) {
  if (!config.class_map.empty()) {
    if (!LabelsAreClasses(loss)) return Invalid("`class_map`: has no effect: the `loss` has no classes");
    auto classes = ReadClassMap(config.class_map);
    return classes.ok() ? classes : Annotate(classes.status(), "`class_map`: ");
  }
  if (!LabelsAreClasses(loss)) return std::vector<std::string>();
  if (before.has_value() && !before->classes.empty()) return before->classes;
  return request.model_classes ? FindClassLabels(model, loss.logits) : std::vector<std::string>();
}

absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInputs(
    const std::vector<std::string>& texts, const std::map<std::string, std::string>& constants) {
  std::map<std::string, std::vector<std::string>> given;
  for (const std::string& text : texts) {
    auto pair = ParsePair(text, "MODEL_INPUT=COLUMN[,…]");
    if (!pair.ok()) return Annotate(pair.status(), "`input`: ");
    if (constants.contains(pair->first)) continue;
    auto columns = ParseList(pair->second);
    if (!columns.ok()) return Annotate(columns.status(), StrCat("`input` ", text, ": "));
    if (!given.emplace(pair->first, *columns).second) return Invalid("`input` ", pair->first, ": given twice");
  }
  return given;
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

std::vector<std::string> ResolveAll(const OpenedSamples& samples, const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    for (std::string& resolved : samples.Resolve(name)) all.push_back(std::move(resolved));
  }
  return all;
}

// Whether --standardize applies: to floats from numbers of the file.
bool IsStandardized(const OpenedData& data, const FeedSpec& feed) {
  const std::vector<Column>& columns = data.bound.dataset->columns();
  const auto measured = [&](int c) { return columns[c].measured && !columns[c].image && c < data.own_columns; };
  return IsFloat(feed.sample.dtype) && std::ranges::any_of(feed.columns, measured);
}

absl::Status FitStandardizations(OpenedData* data) {
  std::shared_ptr<const Dataset> training = data->bound.dataset;
  if (data->held_out.has_value()) training = SubsetDataset(training, data->held_out->rows.train);
  int64_t fitted = 0;
  for (FeedSpec& feed : data->bound.feeds) {
    if (!IsStandardized(*data, feed)) continue;
    ASSIGN_OR_RETURN(Standardization standardization, FitStandardization(*training, feed.columns));
    feed.shift = std::move(standardization.shift);
    feed.divisor = std::move(standardization.divisor);
    fitted += static_cast<int64_t>(feed.columns.size());
  }
  if (fitted == 0) return Invalid("`standardize`: has no effect: no column of numbers feeds an input of floats");
  data->bound.notes.push_back(StrCat("standardized: ", fitted, fitted == 1 ? " column" : " columns"));
  return absl::OkStatus();
}

// Fits what `standardize` asks for; else takes what the model was trained with.
absl::Status SetStandardization(const TrainConfig& config, const std::optional<Preprocess>& before,
                                const DataRequest& request, OpenedData* data) {
  if (request.fit && config.standardize) return FitStandardizations(data);
  if (!before.has_value()) return absl::OkStatus();
  for (FeedSpec& feed : data->bound.feeds) {
    const auto known = before->standardize.find(feed.feed);
    if (known == before->standardize.end() || !IsStandardized(*data, feed)) continue;
    feed.shift = known->second.shift;
    feed.divisor = known->second.divisor;
    data->bound.notes.push_back(StrCat("input '", feed.feed, "' is standardized as in training"));
  }
  return absl::OkStatus();
}

// What OpenSamples has left to be decided.
absl::Status HoldOut(const TrainConfig& config, const DataRequest& request, const DatasetOptions& options,
                     OpenedSamples* samples) {
  if (!request.fit || config.eval_split.empty() || !config.eval_data.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(samples->held_out, HoldOutSamples(config, *samples->dataset, options));
  return absl::OkStatus();
}

// Can samples of a language model be made of the data? A single array of a .npy file may be one of tokens.
bool MayHoldTokens(const TrainConfig& config, const DataRequest& request, const TextSetup& text) {
  if (!config.label.empty() || !config.head.empty() || !config.encode.empty() || !config.fill.empty()) return false;
  const auto found = FindSource(request.path);
  return !text.columns.empty() ||
         (found.ok() && (found->source->tokens != Source::Tokens::kNone || HasSuffix(found->path, {".npy"}, true)));
}

// The column of a source of documents.
std::vector<std::string> DocumentColumns(const std::string& path) {
  const auto found = FindSource(path);
  const bool documents = found.ok() && found->source->tokens == Source::Tokens::kDocuments;
  return documents ? std::vector<std::string>{"text"} : std::vector<std::string>();
}

// The length of the samples that the model was trained on; 0: unknown.
int64_t TrainedLength(const std::optional<Preprocess>& before, const std::string& input) {
  if (!before.has_value()) return 0;
  const auto layout = before->layout.find(input);
  return layout != before->layout.end() && layout->second.size() == 1 ? layout->second[0] : 0;
}

// Replaces samples of text or tokens by blocks of tokens, and binds what only a language model has.
absl::Status MakeBlocks(const TrainConfig& config, const LanguageModel& model, const BlockRequest& request,
                        bool want_label, OpenedSamples* samples, OpenedData* opened, BindSpec* spec) {
  auto data = MakeLanguageData(config, model, request, samples->dataset, &opened->text);
  if (!data.ok()) return Annotate(data.status(), StrCat(request.path, ": "));
  samples->dataset = data->blocks;
  samples->held_out = data->held_out;
  samples->notes.insert(samples->notes.end(), data->notes.begin(), data->notes.end());
  opened->bound.text_unit = data->unit;
  opened->own_loss = model.own_loss;
  spec->first_token_column = 0;
  spec->token_blocks = true;
  const Columns& columns = samples->dataset->columns();
  const auto name = [&](BlockRole role) { return columns[static_cast<size_t>(role)].name; };
  if (want_label) spec->label = {name(BlockRole::kLabels)};
  if (!model.label_input.empty())
    spec->inputs[model.label_input] = {name(model.shifts_labels ? BlockRole::kOwnLabels : BlockRole::kLabels)};
  return absl::OkStatus();
}

}  // namespace

bool IsTableFile(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() && found->source->is_table;
}

absl::StatusOr<OpenedData> OpenData(const TrainConfig& given, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& given_request,
                                    const LossSpec& loss) {
  const TrainConfig config = WithLabelColumns(given);
  DataRequest request = given_request;
  request.folders = FindFolderColumns(given, before, request.path, request.want_label);
  BindSpec spec{.want_label = request.want_label, .ignore_index = loss.ignore_index, .leave_out = request.leave_out};
  ASSIGN_OR_RETURN(spec.dims, ParseDims(config, model));
  if (before.has_value()) {
    spec.inputs = before->inputs;
    spec.label = before->label;
  }
  spec.skip_bad = config.on_bad_sample == "skip";
  DatasetOptions options{.label = spec.label, .eval_split = request.eval_split};
  if (IsSpecified(config, "header") && !IsTableFile(request.path))
    return Invalid("`header`: ", request.path, " is no table of text");
  OpenedData opened;
  ASSIGN_OR_RETURN(opened.classes, ChooseClasses(config, model, before, request, loss));
  if (request.want_label) spec.classes = opened.classes;
  if (IntegerClasses(spec.classes).empty()) options.class_names = spec.classes;
  if (!config.label.empty()) options.label = config.label;
  if (request.want_label) options.folder_classes = opened.classes;
  ASSIGN_OR_RETURN(options.images, PlanImages(config, model.inputs(), spec.dims, before));
  options.images.cache = request.cache;
  ASSIGN_OR_RETURN(options.audio, PlanAudio(config, model, spec.dims, before));
  if (request.text.has_value()) {
    opened.text = *request.text;
    if (opened.text.columns.empty()) opened.text.columns = DocumentColumns(request.path);
  } else {
    ASSIGN_OR_RETURN(opened.text, MakeTextSetup(config, before, request.path, request.fit));
  }
  std::optional<LanguageModel> language;
  if (MayHoldTokens(config, request, opened.text)) {
    ASSIGN_OR_RETURN(language, FindLanguageModel(config, model, loss));
  }
  request.hold_out = !language.has_value();
  if (language.has_value()) options.label.clear();
  options.text.names.insert(opened.text.columns.begin(), opened.text.columns.end());
  auto samples = OpenSamples(config, before, request, options, loss);
  if (!samples.ok()) return Annotate(samples.status(), StrCat("`", request.field, "`: "));
  const bool blocks = language && (!opened.text.columns.empty() || IsTokenSequence(*samples->dataset));
  if (blocks) {
    const BlockRequest block_request{.path = request.path,
                                     .fit = request.fit,
                                     .trained_length = TrainedLength(before, language->ids),
                                     .ignore_index = loss.ignore_index,
                                     .options = &options};
    RETURN_IF_ERROR(MakeBlocks(config, *language, block_request, request.want_label, &*samples, &opened, &spec));
  } else if (opened.text.columns.empty()) {
    RETURN_IF_ERROR(CheckTextFields(config));
    if (language.has_value()) RETURN_IF_ERROR(HoldOut(config, request, options, &*samples));
  } else {
    auto tokens = AddTokens(config, model, &opened.text, samples->dataset, &samples->notes);
    if (!tokens.ok()) return Annotate(tokens.status(), StrCat(request.path, ": "));
    samples->dataset = tokens->dataset;
    spec.first_token_column = tokens->first_column;
  }
  const Columns& columns = samples->dataset->columns();
  if (request.want_label) RETURN_IF_ERROR(AddOwnLabels(loss, model, columns, &spec));
  opened.own_columns = static_cast<int>(columns.size());
  opened.transforms = samples->transforms;
  opened.held_out = samples->held_out;
  if (!config.label.empty() || !request.want_label) spec.label.clear();
  std::map<std::string, std::vector<std::string>> explicit_inputs;
  const std::map<std::string, std::string> constants = FindConstantTexts(config, model);
  ASSIGN_OR_RETURN(explicit_inputs, ParseInputs(config.input, constants));
  for (auto& [input, names] : explicit_inputs) {
    spec.inputs.erase(input);
    names = ResolveAll(*samples, names);
  }
  RETURN_IF_ERROR(Annotate(MatchColumns(columns, request, &spec), StrCat(request.path, ": ")));
  spec.inputs.merge(explicit_inputs);
  if (!config.label.empty()) spec.label = ResolveAll(*samples, config.label);
  if (!request.want_label && before.has_value()) {
    for (const std::string& label : before->label) {
      if (config.label.empty() && HasColumn(columns, label)) spec.label.push_back(label);
    }
  }
  const std::string normalize = ChooseNormalize(config, before);
  auto pixels = ParseNormalize(normalize);
  if (!pixels.ok()) return Annotate(pixels.status(), "`normalize`: ");
  spec.pixels = *pixels;
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  const std::vector<OnnxModel::Input> needed = NeededInputs(model, outputs);
  DefaultInputs natural = FindDefaultInputs(needed, [&](const std::string& name) {
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
  auto bound = BindData(fed, samples->dataset, spec);
  if (!bound.ok()) return Annotate(bound.status(), StrCat(request.path, ": "));
  const TextUnit unit = opened.bound.text_unit;
  opened.bound = *std::move(bound);
  opened.bound.text_unit = unit;
  opened.bound.fixed_inputs = natural.fixed;
  std::vector<std::string>& notes = opened.bound.notes;
  notes.insert(notes.begin(), samples->notes.begin(), samples->notes.end());
  notes.insert(notes.end(), natural.notes.begin(), natural.notes.end());
  RETURN_IF_ERROR(SetStandardization(config, before, request, &opened));
  if (opened.bound.has_images) opened.normalize = normalize;
  if (opened.bound.has_images && !IsSpecified(config, "normalize") && !before.has_value()) {
    std::string declared = DescribeDeclaredPixels(model, normalize, options.images.bgr);
    if (!declared.empty()) opened.bound.warnings.push_back(std::move(declared));
  }
  if (FeedsPictures(opened.bound)) opened.pictures = DescribeImages(options.images, request.folders);
  RETURN_IF_ERROR(CheckPictureFields(config, request.path, opened.pictures.has_value()));
  opened.audio = DescribeAudio(opened.bound);
  RETURN_IF_ERROR(CheckAudioFields(config, request.path, opened.audio.has_value()));
  if (request.cache != nullptr) RETURN_IF_ERROR(KeepInMemory(request.path, request.cache, &opened.bound));
  if (IsSpecified(config, "normalize") && !opened.bound.has_images) {
    return Invalid("`normalize`: has no effect: ", request.path, " feeds no 8-bit images");
  }
  return opened;
}

void OpenedData::ChooseOwnLoss(LossSpec* loss) const {
  if (!own_loss.empty() && loss->name == "auto") loss->name = "output:" + own_loss;
}

bool HasEvalFiles(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() && found->source->has_eval_samples != nullptr && found->source->has_eval_samples(found->path);
}

absl::StatusOr<ModelAndData> OpenModelAndData(const TrainConfig& given, bool eval_split, bool want_label) {
  const TrainConfig config = WithFolderRoot(given);
  RETURN_IF_ERROR(Validate(config));
  ModelAndData opened;
  ASSIGN_OR_RETURN(opened.model, LoadRunnableModel(config));
  if (config.data.empty()) return Invalid("`data`: missing (which file of samples?)");
  ASSIGN_OR_RETURN(opened.before, ReadPreprocess(config.model));
  ASSIGN_OR_RETURN(opened.loss, MakeLossSpec(config, *opened.model, opened.before));
  const DataRequest request{.path = config.data,
                            .field = "data",
                            .eval_split = eval_split && HasEvalFiles(config.data),
                            .want_label = want_label,
                            .same_columns = true,
                            .model_classes = !ChangesClasses(config)};
  if (opened.before.has_value() && ChangesClasses(config)) opened.before->classes.clear(), opened.before->loss.clear();
  ASSIGN_OR_RETURN(opened.data, OpenData(config, *opened.model, opened.before, request, opened.loss));
  opened.data.ChooseOwnLoss(&opened.loss);
  if (!HasSurgery(config)) return opened;
  ASSIGN_OR_RETURN(Surgery surgery,
                   ApplySurgery(config, std::move(opened.model), &opened.data.bound, opened.loss.logits));
  opened.model = std::move(surgery.model);
  opened.data.bound.notes.insert(opened.data.bound.notes.end(), surgery.lines.begin(), surgery.lines.end());
  if (!surgery.logits.empty()) opened.loss.logits = surgery.logits;
  return opened;
}

Preprocess DescribeBinding(const OpenedData& data) {
  Preprocess p{
      .normalize = data.normalize, .pictures = data.pictures, .audio = data.audio, .classes = data.bound.classes};
  const std::vector<Column>& columns = data.bound.dataset->columns();
  for (const FeedSpec& feed : data.bound.feeds) {
    for (int c : feed.columns) {
      if (c < data.own_columns) p.inputs[feed.feed].push_back(columns[c].name);
    }
    if (p.inputs.contains(feed.feed)) p.layout[feed.feed] = feed.sample.shape;
    if (!feed.shift.empty()) p.standardize[feed.feed] = {feed.shift, feed.divisor};
  }
  for (int c : data.bound.label.columns) p.label.push_back(columns[c].name);
  p.columns = data.transforms;
  if (data.text.tokenizer != nullptr) {
    p.text = {.columns = data.text.columns,
              .tokenizer = "tokenizer",
              .sha256 = TokenizerDigest(*data.text.tokenizer),
              .max_length = data.text.max_length};
  }
  return p;
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

int MaxWorkers(const TrainConfig& config) {
  return config.num_workers == TrainConfig::kAuto ? std::clamp(CpuCount(), 1, 8) : 0;
}

}  // namespace onnxtrain
