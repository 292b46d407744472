#include "optim/plan/open_data.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/bind/sound_lengths.h"
#include "frontend/data/bind/text_labels.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/data/text/token_blocks.h"
#include "frontend/onnx/edit/chosen_scores.h"
#include "optim/config/config.h"
#include "optim/config/loss_text.h"
#include "optim/plan/chat_data.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/language_data.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/output_axes.h"
#include "optim/plan/processor_config.h"
#include "optim/plan/step_plan.h"

namespace onnxtrain {
namespace {

bool NeedsAllSamples(const TrainConfig& c, const std::optional<Preprocess>& before) {
  const bool transforms = !c.encode.empty() || !c.fill.empty() || c.standardize || c.scale_targets;
  const bool text = !c.text.empty() || !c.tokenizer.empty();
  const bool carried = before.has_value() && !(before->columns.empty() && before->text.columns.empty());
  return transforms || text || carried || !c.eval_split.empty() || c.on_bad_sample == "skip" || c.lr_find;
}

// Returns the number of samples in a window of the pipe that `request` names: whole batches, more if they are shuffled.
// Returns 0 if the data is read to its end before training: it is no pipe, max_steps does not limit the training, or
// something needs all samples (a split, text, fitted transforms, a second look at samples).
int64_t StreamWindow(const TrainConfig& config, const OnnxModel& model, const std::optional<Preprocess>& before,
                     const DataRequest& request) {
  constexpr int64_t kShuffled = 4096, kBatches = 8;
  const bool endless = request.fit && IsStdin(request.path) && config.max_steps > 0 && config.epochs == 0;
  const auto plan = PlanBatch(config, GlobalBatchSize(config, model));
  if (!endless || !plan.ok() || NeedsAllSamples(config, before)) return 0;
  return plan->global * std::max(kBatches, config.shuffle ? kShuffled / plan->global : 0);
}

using Columns = std::vector<Column>;

// Returns the labels, with the keys of BindSpec, that are classes as far as is known before the loss is chosen.
std::set<std::string> FindClassLabelKeys(const LossSpec& loss) {
  std::set<std::string> keys;
  const auto terms = ParseLoss(loss.name);
  if (!terms.ok()) return keys;
  for (const LossTermSpec& term : *terms) {
    const bool classes = term.function == nullptr || term.function->classes || term.function->name == "bce";
    if (term.file.empty() && classes) keys.insert(term.label_key());
  }
  return keys;
}
bool LabelsAreClasses(const LossSpec& loss) { return FindClassLabelKeys(loss).contains(""); }

// Returns the class names in the order of the scores: from class_map, else the training data, else the model file.
absl::StatusOr<std::vector<std::string>> ChooseClasses(const TrainConfig& config, const OnnxModel& model,
                                                       const std::optional<Preprocess>& before,
                                                       const DataRequest& request, const LossSpec& loss) {
  if (!config.class_map.empty()) {
    RETURN_IF_ERROR(RefuseUnused(config, {.has_classes = LabelsAreClasses(loss)}));
    auto classes = ReadClassMap(config.class_map);
    return classes.ok() ? classes : Annotate(classes.status(), "`class_map`: ");
  }
  if (!LabelsAreClasses(loss)) return std::vector<std::string>();
  if (before.has_value() && !before->classes.empty()) return before->classes;
  if (!request.model_classes) return std::vector<std::string>();
  std::vector<std::string> classes = FindClassLabels(model, loss.logits);
  return classes.empty() && !model.in_memory() ? ReadClassNames(model.path()) : classes;
}

// Fails if samples would feed an input without a batch axis.
absl::Status CheckBatchedInputs(const std::vector<OnnxModel::Input>& inputs, const BatchAxes& axes) {
  for (const OnnxModel::Input& input : inputs) {
    const auto axis = axes.find(input.name);
    const bool batchless = input.dims.empty() || (axis != axes.end() && axis->second == kNoBatchAxis);
    if (input.has_shape && batchless)
      return Invalid("input '", input.name, "' ", TypeText(input),
                     " has no batch axis: it cannot be fed with samples; give it a constant (`input` ", input.name,
                     "=N or ", input.name, "=@FILE.npy)");
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

// Holds out the samples if OpenSamples has left that to the caller.
absl::Status HoldOut(const TrainConfig& config, const DataRequest& request, const DatasetOptions& options,
                     OpenedSamples* samples) {
  if (!request.fit || config.eval_split.empty() || !config.eval_data.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(samples->held_out, HoldOutSamples(config, *samples->dataset, options));
  return absl::OkStatus();
}

// Opens a data set in stages, each of which uses the results of the previous ones.
class DataOpener {
 public:
  DataOpener(const TrainConfig& given, const OnnxModel& model, const std::optional<Preprocess>& before,
             const DataRequest& request, const LossSpec& loss)
      : config_(WithLabelColumns(given)), model_(model), before_(before), request_(request), loss_(loss) {
    request_.folders = FindFolderColumns(given, before, request_.path, request_.want_label);
    spec_ = {.want_label = request_.want_label,
             .read_labels = request_.want_label,
             .ignore_index = loss.ignore_index,
             .leave_out = request_.leave_out};
    spec_.skip_bad = config_.on_bad_sample == "skip";
    if (before.has_value()) {
      spec_.inputs = before->inputs;
      spec_.label = before->label;
    }
    options_ = {.label = config_.label.empty() ? spec_.label : config_.label,
                .stream_window = StreamWindow(config_, model_, before_, request_),
                .eval_split = request_.eval_split};
  }

  absl::StatusOr<OpenedData> Open() {
    RETURN_IF_ERROR(PlanSamples());
    RETURN_IF_ERROR(PlanText());
    RETURN_IF_ERROR(ReadSamples());
    RETURN_IF_ERROR(ChooseColumns());
    RETURN_IF_ERROR(BindInputs());
    RETURN_IF_ERROR(DescribeSamples());
    return std::move(opened_);
  }

 private:
  // Plans classes, pictures and sounds.
  absl::Status PlanSamples() {
    ASSIGN_OR_RETURN(spec_.dims, ParseDims(config_, model_));
    if (config_.header != "auto" && !IsTableFile(request_.path))
      return Invalid("`header` ", config_.header, ": ", request_.path, " is no table of text");
    RETURN_IF_ERROR(SetEncoding());
    ASSIGN_OR_RETURN(alphabet_, FindAlphabet(config_, model_, before_, loss_));
    opened_.alphabet = alphabet_.alphabet;
    TakePictureForm();
    TakeProcessorConfig();
    const bool reads_texts = alphabet_.expects_texts && config_.label.size() <= 1;
    options_.text_labels = reads_texts && request_.want_label;
    if (opened_.alphabet != nullptr) options_.stream_window = 0;  // all labels get the length of the longest
    if (opened_.alphabet == nullptr) {
      ASSIGN_OR_RETURN(opened_.classes, ChooseClasses(config_, model_, before_, request_, loss_));
    }
    if (request_.want_label) spec_.classes = options_.folder_classes = opened_.classes;
    if (IntegerClasses(spec_.classes).empty()) options_.class_names = spec_.classes;
    ASSIGN_OR_RETURN(import_, MakeImportOptions(config_, model_));
    if (opened_.alphabet != nullptr) import_.batch_axes.merge(FindTimeFirstOutputs(model_));
    ASSIGN_OR_RETURN(options_.images,
                     PlanImages(config_, MoveBatchFirst(model_.inputs(), import_.batch_axes), spec_.dims, before_));
    options_.images.cache = request_.cache;
    if (filter_.has_value()) options_.images.filter = *filter_;
    if (options_.images.sizes.has_value()) {
      if (opened_.alphabet != nullptr) FindLineForm();
      options_.images.sizes->find_multiple = [this] { return FindMultiple(); };
    }
    ASSIGN_OR_RETURN(options_.audio, PlanAudio(config_, model_, spec_.dims, before_, reads_texts));
    return absl::OkStatus();
  }

  // Reads pictures as the files of a recognizer say, where the user does not.
  void TakePictureForm() {
    const auto takes_colors = [](const ModelInput& input) { return input.dims.size() == 4 && input.dims[1] == 3; };
    const PictureForm& form = alphabet_.pictures;
    if (form.normalize.empty() || std::ranges::none_of(model_.inputs(), takes_colors)) return;
    std::vector<std::string> taken;
    const auto take = [&](const char* field, const std::string& value, std::string* own) {
      if (!own->empty()) return;
      *own = value;
      taken.push_back(StrCat("`", field, "` ", value));
    };
    take("normalize", form.normalize, &config_.normalize);
    take("channel_order", form.channel_order, &config_.channel_order);
    form_note_ = taken.empty() ? "" : StrCat("pixels as models of PP-OCR take them: ", absl::StrJoin(taken, ", "));
  }

  // Reads pictures as preprocessor_config.json says, where neither the user, an earlier training nor the model does.
  void TakeProcessorConfig() {
    if (before_.has_value()) return;
    const ProcessorConfig processor = ReadProcessorConfig(model_.path());
    const auto picture = std::ranges::find_if(model_.inputs(), [](const ModelInput& input) {
      return input.dims.size() == 4 && (input.dims[1] == 3 || input.dims[1] == 1 || input.dims[1] < 0);
    });
    if (picture == model_.inputs().end()) return;
    std::vector<std::string> taken;
    const auto take = [&](const char* field, const std::string& value, std::string* own) {
      if (value.empty() || !own->empty()) return;
      *own = value;
      taken.push_back(StrCat("`", field, "` ", value));
    };
    const bool declares = !FindModelMetadata(model_, "Image.NominalPixelRange").empty();
    if (!declares) take("normalize", processor.normalize, &config_.normalize);
    const bool is_open = picture->dims[2] < 0 && picture->dims[3] < 0 && !HasDims(*picture);
    if (is_open && processor.height > 0)
      take("image_size", StrCat(processor.height, "x", processor.width), &config_.image_size);
    take("resize", processor.resize, &config_.resize);
    filter_ = processor.filter;
    if (filter_.has_value()) taken.push_back(StrCat("resample ", FilterName(*filter_)));
    if (!taken.empty()) form_note_ = StrCat("pictures as ", processor.path, " says: ", absl::StrJoin(taken, ", "));
  }

  // Returns true if `dim` sets the height or width of an input of pictures.
  bool HasDims(const ModelInput& input) const {
    const auto& names = input.dim_names;
    return names.size() == 4 && (spec_.dims.contains(names[2]) || spec_.dims.contains(names[3]));
  }

  // Finds the height of lines of text, and their channels, where the model leaves them open, but takes one only.
  void FindLineForm() {
    ImageOptions& images = options_.images;
    PictureSizes& sizes = *images.sizes;
    if (alphabet_.pictures.height == 0 && FindMultiple().ok()) return;
    const ImageOptions open = images;
    const auto input = std::ranges::find(model_.inputs(), sizes.input, &ModelInput::name);
    const bool any_channels = !before_.has_value() && input->dims[images.channels_last ? 3 : 1] < 0;
    std::vector<int64_t> heights = {sizes.height};
    if (sizes.height == 0) heights = ListLineHeights(config_, alphabet_.pictures.height);
    for (const int64_t height : heights) {
      for (const int channels : {open.channels, any_channels ? 1 : open.channels}) {
        sizes.height = height;
        images.channels = channels;
        if (FindMultiple().ok()) return;
      }
    }
    images = open;
  }

  absl::Status SetEncoding() {
    options_.encoding = config_.encoding;
    if (config_.encoding.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(Annotate(CheckEncoding(config_.encoding), "`encoding`: "));
    const bool text = IsTableFile(request_.path) || !DocumentColumns(request_.path).empty();
    return RefuseUnused(config_, {.subject = request_.path, .is_text_file = text});
  }

  // Returns the size multiple of the model's first input of pictures.
  absl::StatusOr<int64_t> FindMultiple() const { return FindSizeMultiple(config_, model_, loss_, options_.images); }

  absl::Status PlanText() {
    if (request_.text.has_value()) {
      opened_.text = *request_.text;
      if (opened_.text.columns.empty()) opened_.text.columns = DocumentColumns(request_.path);
    } else {
      ASSIGN_OR_RETURN(opened_.text, MakeTextSetup(config_, before_, request_.path, request_.fit));
    }
    const TokenData tokens = FindTokenData(config_, request_, opened_.text);
    if (tokens != TokenData::kNone) {
      ASSIGN_OR_RETURN(language_, FindLanguageModel(config_, model_, loss_));
    }
    makes_blocks_ = language_.has_value() && tokens == TokenData::kTokens;
    request_.hold_out = !makes_blocks_;
    if (makes_blocks_) options_.label.clear();
    options_.text.names.insert(opened_.text.columns.begin(), opened_.text.columns.end());
    if (language_.has_value() && config_.text.empty()) AddDialogueColumns();
    return absl::OkStatus();
  }

  // Reads columns as text that may hold dialogues, unless they have the names of inputs.
  void AddDialogueColumns() {
    std::vector<std::string> names = ListDialogueColumns();
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::any_of(model_.inputs(), [&](const OnnxModel::Input& input) {
        return name == input.name || name == StripExporterAffixes(input.name);
      });
    });
    for (const std::string& name : {config_.prompt, config_.completion}) {
      if (!name.empty()) names.push_back(name);
    }
    options_.text.names.insert(names.begin(), names.end());
  }

  // Returns the chosen columns of each input.
  absl::StatusOr<std::map<std::string, std::vector<std::string>>> ChosenColumns() const {
    std::map<std::string, std::vector<std::string>> chosen;
    ASSIGN_OR_RETURN(chosen, ParseInputs(config_.input, FindConstantTexts(config_, model_)));
    if (before_.has_value()) chosen.insert(before_->inputs.begin(), before_->inputs.end());
    return chosen;
  }

  absl::Status ReadSamples() {
    std::map<std::string, std::vector<std::string>> chosen;
    ASSIGN_OR_RETURN(chosen, ChosenColumns());
    request_.raw_inputs = ListRawInputs(model_.inputs(), chosen);
    auto samples = OpenSamples(config_, before_, request_, options_, loss_);
    if (!samples.ok()) return ExplainBadSample(Annotate(samples.status(), StrCat("`", request_.field, "`: ")));
    samples_ = *std::move(samples);
    RETURN_IF_ERROR(ReadTextLabels());
    AddSoundLengths(chosen);
    RETURN_IF_ERROR(ReadTokens());
    if (request_.want_label) RETURN_IF_ERROR(AddOwnLabels(loss_, model_, columns(), &spec_));
    opened_.own_columns = static_cast<int>(columns().size());
    opened_.transforms = samples_.transforms;
    opened_.held_out = samples_.held_out;
    return absl::OkStatus();
  }

  // Adds columns for inputs that take the lengths of sounds. `chosen` has the inputs that columns are chosen for.
  void AddSoundLengths(const std::map<std::string, std::vector<std::string>>& chosen) {
    const auto sound = std::ranges::find_if(columns(), [](const Column& column) { return column.sample_rate > 0; });
    if (sound == columns().end()) return;
    std::set<std::string> fed;
    for (const auto& [input, names] : chosen) {
      if (std::ranges::all_of(names, [&](const std::string& name) { return HasColumn(columns(), name); }))
        fed.insert(input);
    }
    for (const auto& [input, text] : FindConstantTexts(config_, model_)) fed.insert(input);
    samples_.dataset = WithSoundLengths(samples_.dataset, static_cast<int>(sound - columns().begin()), model_.inputs(),
                                        fed, &samples_.notes);
  }

  // Replaces the label by its classes if it is a text. Labels that are numbers stay as they are.
  absl::Status ReadTextLabels() {
    if (!options_.text_labels) return absl::OkStatus();
    const auto label = std::ranges::find_if(columns(), [&](const Column& column) {
      return column.text && !options_.text.contains(column.name) && column.name != request_.leave_out;
    });
    if (label == columns().end()) return absl::OkStatus();
    if (opened_.alphabet == nullptr)
      return Invalid(request_.path, ": column '", label->name,
                     "' holds texts, and nothing names the characters of the ",
                     "model's classes (`class_map` FILE has one per line)");
    const auto c = static_cast<int>(label - columns().begin());
    spec_.label = {label->name};
    ASSIGN_OR_RETURN(samples_.dataset,
                     WithTextClasses(samples_.dataset, c, *opened_.alphabet, spec_.ignore_index, spec_.skip_bad));
    if (!alphabet_.note.empty()) samples_.notes.push_back(alphabet_.note);
    return absl::OkStatus();
  }

  // Returns true if the data has columns for the model's inputs, instead of the texts that training used.
  bool IsTokenized() const {
    const bool asked_for_texts = !config_.text.empty() && !request_.text.has_value();
    const auto has = [&](const std::string& name) { return HasColumn(columns(), name); };
    if (asked_for_texts || std::ranges::any_of(opened_.text.columns, has)) return false;
    return std::ranges::any_of(model_.inputs(), [&](const OnnxModel::Input& input) {
      return has(input.name) || has(std::string(StripExporterAffixes(input.name)));
    });
  }

  // Tokenizes the text; makes blocks of tokens for a language model.
  absl::Status ReadTokens() {
    if (!opened_.text.columns.empty() && IsTokenized()) {
      samples_.notes.push_back(
          StrCat("there is no column '", opened_.text.columns[0], "' of text: the columns of tokens feed the model"));
      opened_.text = {};
    }
    if (!opened_.text.found_in.empty())
      samples_.notes.push_back(StrCat("the tokenizer is the one in ", opened_.text.found_in, " (`tokenizer`)"));
    std::optional<DialogueForm> form;
    if (language_.has_value()) {
      ASSIGN_OR_RETURN(form, FindDialogues(config_, *samples_.dataset, opened_.text));
    }
    if (!form.has_value()) RETURN_IF_ERROR(RefuseUnused(config_, {.subject = request_.path, .has_answers = false}));
    if (form || (makes_blocks_ && (!opened_.text.columns.empty() || IsTokenSequence(*samples_.dataset)))) {
      const BlockRequest block_request{.path = request_.path,
                                       .fit = request_.fit,
                                       .trained_length = TrainedLength(before_, language_->ids),
                                       .ignore_index = loss_.ignore_index,
                                       .options = &options_,
                                       .model = &model_};
      return MakeBlocks(config_, *language_, block_request, form, request_.want_label, &samples_, &opened_, &spec_);
    }
    if (opened_.text.columns.empty()) {
      if (!request_.text.has_value()) RETURN_IF_ERROR(RefuseUnused(config_, {.has_text_columns = false}));
      return makes_blocks_ ? HoldOut(config_, request_, options_, &samples_) : absl::OkStatus();
    }
    auto tokens = AddTokens(config_, model_, &opened_.text, samples_.dataset, &samples_.notes);
    if (!tokens.ok()) return Annotate(tokens.status(), StrCat(request_.path, ": "));
    samples_.dataset = tokens->dataset;
    spec_.first_token_column = tokens->first_column;
    return absl::OkStatus();
  }

  // Chooses the columns of inputs and labels.
  absl::Status ChooseColumns() {
    spec_.class_labels = FindClassLabelKeys(loss_);
    const bool same_label = config_.label.empty() || config_.label == spec_.label;
    if (before_.has_value() && !request_.fit && same_label) spec_.mask_encodings = before_->mask_encodings;
    if (!config_.label.empty() || !request_.want_label) spec_.label.clear();
    constants_ = FindConstantTexts(config_, model_);
    std::map<std::string, std::vector<std::string>> explicit_inputs;
    ASSIGN_OR_RETURN(explicit_inputs, ParseInputs(config_.input, constants_));
    for (auto& [input, names] : explicit_inputs) {
      spec_.inputs.erase(input);
      names = ResolveAll(samples_, names);
    }
    RETURN_IF_ERROR(Annotate(MatchColumns(columns(), request_.same_columns, &spec_), StrCat(request_.path, ": ")));
    spec_.inputs.merge(explicit_inputs);
    if (!config_.label.empty()) spec_.label = ResolveAll(samples_, config_.label);
    if (!request_.want_label && before_.has_value()) {
      for (const std::string& label : before_->label) {
        if (config_.label.empty() && HasColumn(columns(), label)) spec_.label.push_back(label);
      }
    }
    normalize_ = ChooseNormalize(config_, before_);
    auto pixels = ParseNormalize(normalize_);
    if (!pixels.ok()) return Annotate(pixels.status(), "`normalize`: ");
    spec_.pixels = *pixels;
    spec_.pixels_requested = IsSpecified(config_, "normalize");
    // Files of earlier versions do not list the inputs.
    if (before_.has_value() && (before_->normalize.empty() || !before_->pixels.empty()))
      spec_.pixel_inputs = before_->pixels;
    return absl::OkStatus();
  }

  absl::Status BindInputs() {
    ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model_, loss_));
    const std::vector<OnnxModel::Input> needed = NeededInputs(model_, outputs);
    DefaultInputs natural = FindDefaultInputs(
        needed, [&](const std::string& name) { return spec_.inputs.contains(name) || HasColumn(columns(), name); });
    for (const auto& [name, text] : constants_) {
      const auto fixed = import_.fixed_inputs.find(name);
      if (fixed == import_.fixed_inputs.end()) continue;  // the outputs do not depend on it
      natural.fixed[name] = fixed->second;
      natural.notes.push_back(StrCat("input '", name, "' ← the constant ", text));
    }
    auto bound = BindWithAxes(WithoutFixed(needed, natural));
    if (!bound.ok()) return ExplainBadSample(WithPath(bound.status(), request_.path));
    RETURN_IF_ERROR(WithPath(CheckTextInputs(*bound), request_.path));
    bound->text_unit = opened_.bound.text_unit;
    bound->packed = std::move(opened_.bound.packed);
    opened_.bound = *std::move(bound);
    opened_.bound.fixed_inputs = natural.fixed;
    std::vector<std::string>& notes = opened_.bound.notes;
    notes.insert(notes.begin(), samples_.notes.begin(), samples_.notes.end());
    notes.insert(notes.end(), natural.notes.begin(), natural.notes.end());
    RETURN_IF_ERROR(KeepPlaces(outputs));
    return SetStandardization(config_, before_, request_, &opened_);
  }

  // Binds the data with the model's batch axes. If it does not fit them, tries whole inputs as samples.
  absl::StatusOr<BoundData> BindWithAxes(const std::vector<OnnxModel::Input>& inputs) const {
    const auto bind = [&](const BatchAxes& axes) -> absl::StatusOr<BoundData> {
      const std::vector<OnnxModel::Input> fed = MoveBatchFirst(inputs, axes);
      RETURN_IF_ERROR(CheckBatchedInputs(fed, axes));
      ASSIGN_OR_RETURN(BoundData bound, BindData(fed, samples_.dataset, spec_));
      bound.batch_axes = axes;
      return bound;
    };
    const auto of_tensors = [](const FeedSpec& feed) { return feed.columns.size() == 1; };
    auto bound = bind(import_.batch_axes);
    if (bound.ok() || config_.batch_axis == "none") return bound;
    for (const BatchAxes& axes : GuessWholeSamples(model_, inputs)) {
      auto whole = bind(axes);
      if (whole.ok() && std::ranges::all_of(whole->feeds, of_tensors)) return whole;
    }
    return bound;
  }

  // Makes all samples one batch, in order, if a constant refers to them by position.
  absl::Status KeepPlaces(const std::vector<std::string>& outputs) {
    BoundData& bound = opened_.bound;
    std::vector<std::string> arrays;
    for (const auto& [name, text] : constants_) {
      if (text.starts_with("@") && bound.fixed_inputs.contains(name)) arrays.push_back(name);
    }
    if (arrays.empty() || bound.dataset->streams()) return absl::OkStatus();
    ImportOptions import = ImportWithData(import_, bound);
    import.outputs = outputs;
    const int64_t samples = bound.dataset->size();
    bound.sample_index_input = FindInputOfPlaces(model_, import, arrays, samples);
    if (bound.sample_index_input.empty()) return absl::OkStatus();
    const std::string why = DescribePlaces(bound.sample_index_input, samples);
    if (opened_.held_out.has_value()) return Invalid("`eval_split`: ", why, ": none can be held out");
    if (config_.batch_size > 0 && config_.batch_size != samples)
      return Invalid("`batch_size` ", config_.batch_size, ": ", why);
    bound.notes.push_back(why);
    return absl::OkStatus();
  }

  // Fails if an input of strings is fed with columns that were not read as strings.
  absl::Status CheckTextInputs(const BoundData& bound) const {
    for (const RawInput& input : request_.raw_inputs) {
      const auto feed = std::ranges::find(bound.feeds, input.name, &FeedSpec::feed);
      if (input.texts == nullptr || feed == bound.feeds.end()) continue;
      for (const int c : feed->columns) {
        const std::string& column = bound.dataset->columns()[c].name;
        if (!samples_.text_columns.contains(column))
          return Invalid("input '", input.name, "' takes strings: `input` ", input.name,
                         "=COLUMN says where they are, if not in '", column, "'");
      }
    }
    return absl::OkStatus();
  }

  // Suggests `on_bad_sample` in errors about a row if the model was trained on data with these columns: few rows of
  // such data are unreadable.
  absl::Status ExplainBadSample(const absl::Status& status) const {
    const std::string message(ToStd(status.message()));
    if (!before_.has_value() || spec_.skip_bad || message.find(": row ") == std::string::npos) return status;
    return Invalid(message, " (`on_bad_sample` skip leaves such samples out)");
  }

  absl::Status CompareDeclaredPixels() {
    const ImportOptions import = ImportWithData(import_, opened_.bound);
    for (const FeedSpec& feed : opened_.bound.feeds) {
      const Column& column = opened_.bound.dataset->columns()[feed.columns[0]];
      if (feed.columns.size() != 1 || !column.image) continue;
      GivenPixels given{.normalize = normalize_, .specified = IsSpecified(config_, "normalize")};
      if (column.picture) given.bgr = options_.images.bgr;
      std::string declared = DescribeDeclaredPixels(model_, import, feed, given);
      if (!declared.empty()) opened_.bound.warnings.push_back(std::move(declared));
      break;
    }
    return absl::OkStatus();
  }

  // Explains why arrays of pixels are not treated as pictures.
  const char* ExplainNoPictures() const {
    const auto& feeds = opened_.bound.feeds;
    const bool table = std::ranges::any_of(feeds, [](const FeedSpec& feed) { return feed.columns.size() >= 64; });
    const bool bits = std::ranges::any_of(opened_.bound.dataset->columns(), [](const Column& column) {
      return column.sample.dtype == DType::kBool && column.sample.rank() >= 2;
    });
    return table  ? " (pixels in columns of their own are none: an .npy or .npz array of all is)"
           : bits ? " (arrays of bool are none: of uint8 or float32 they are)"
                  : "";
  }

  // Describes pictures and sounds, once it is known whether they feed an input.
  absl::Status DescribeSamples() {
    if (opened_.bound.has_images) opened_.normalize = normalize_;
    if (opened_.bound.has_images && !before_.has_value()) RETURN_IF_ERROR(CompareDeclaredPixels());
    if (FeedsPictures(opened_.bound)) {
      if (!form_note_.empty()) opened_.bound.notes.push_back(form_note_);
      opened_.pictures = DescribeImages(options_.images, SizeMultiple(opened_.bound), request_.folders);
      RETURN_IF_ERROR(CheckSmallestPictures(config_, model_, loss_, opened_.bound));
    }
    opened_.audio = DescribeAudio(opened_.bound, options_.audio);
    if (request_.cache != nullptr)
      RETURN_IF_ERROR(KeepInMemory(config_, request_.path, request_.cache, &opened_.bound));
    if (!opened_.pictures.has_value()) {
      ASSIGN_OR_RETURN(opened_.arrays, AugmentBoundArrays(config_, request_.path, &opened_.bound));
    }
    return RefuseUnused(config_, {.subject = request_.path,
                                  .hint = ExplainNoPictures(),
                                  .has_images = opened_.bound.has_images,
                                  .has_pictures = opened_.pictures.has_value(),
                                  .has_sounds = opened_.audio.has_value(),
                                  .augments = opened_.pictures.has_value() || opened_.arrays.has_value()});
  }

  const Columns& columns() const { return samples_.dataset->columns(); }

  TrainConfig config_;
  const OnnxModel& model_;
  const std::optional<Preprocess>& before_;
  DataRequest request_;
  const LossSpec& loss_;

  BindSpec spec_;
  ImportOptions import_;  // the options before the data is known
  DatasetOptions options_;
  FoundAlphabet alphabet_;
  std::string form_note_;                  // what files beside the model have set
  std::optional<Filter> filter_;           // that these files ask for
  std::optional<LanguageModel> language_;  // set if the model may predict the next token of the data
  bool makes_blocks_ = false;              // it does, unless the data turns out to hold samples of tokens
  OpenedSamples samples_;
  std::map<std::string, std::string> constants_;  // texts by input
  std::string normalize_;
  OpenedData opened_;
};

}  // namespace

bool IsTableFile(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() && found->source->is_table;
}

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss) {
  return DataOpener(config, model, before, request, loss).Open();
}

void OpenedData::ChooseOwnLoss(LossSpec* loss) const {
  if (!own_loss.empty() && loss->name == "auto") loss->name = "output:" + own_loss;
  if (alphabet == nullptr) return;
  loss->alphabet = alphabet;
  if (loss->name == "auto" && bound.label.info.sample.rank() == 1) loss->name = "ctc";
}

}  // namespace onnxtrain
