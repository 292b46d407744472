// Plans how the samples of a model are read: classes, pictures, sounds and text (open_stages.h).
#include <algorithm>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/text/text_encoding.h"
#include "frontend/onnx/edit/chosen_scores.h"
#include "optim/config/loss_text.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/chat_data.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/folders.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/open_stages.h"
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

// Returns the number of samples in a window of the pipe that the request names: whole batches, more if they are
// shuffled. Returns 0 if the data is read to its end before training: it is no pipe, max_steps does not limit the
// training, or something needs all samples (a split, text, fitted transforms, a second look at samples).
int64_t StreamWindow(const ReadingPlan& plan) {
  constexpr int64_t kShuffled = 4096, kBatches = 8;
  const TrainConfig& config = plan.config;
  const bool endless = plan.request.fit && IsStdin(plan.request.path) && config.max_steps > 0 && config.epochs == 0;
  const auto batch = PlanBatch(config, GlobalBatchSize(config, plan.model));
  if (!endless || !batch.ok() || NeedsAllSamples(config, plan.before)) return 0;
  return batch->global * std::max(kBatches, config.shuffle ? kShuffled / batch->global : 0);
}

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

// Returns the class names in the order of the scores: from class_map, else the training data, else the model file.
absl::StatusOr<std::vector<std::string>> ChooseClasses(const ReadingPlan& plan) {
  const bool are_classes = plan.class_labels.contains("");
  const std::string& class_map = plan.config.class_map;
  if (!class_map.empty()) {
    RETURN_IF_ERROR(RefuseUnused(plan.config, {.has_classes = are_classes}));
    auto classes = ReadClassMap(class_map);
    return classes.ok() ? classes : Annotate(classes.status(), "`class_map`: ");
  }
  if (!are_classes) return std::vector<std::string>();
  if (plan.before.has_value() && !plan.before->classes.empty()) return plan.before->classes;
  if (!plan.request.model_classes) return std::vector<std::string>();
  std::vector<std::string> classes = FindClassLabels(plan.model, plan.loss.logits);
  return classes.empty() && !plan.model.in_memory() ? ReadClassNames(plan.model.path()) : classes;
}

absl::Status SetEncoding(ReadingPlan* plan) {
  const std::string& encoding = plan->config.encoding;
  plan->options.encoding = encoding;
  if (encoding.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Annotate(CheckEncoding(encoding), "`encoding`: "));
  const std::string& path = plan->request.path;
  const bool text = IsTableFile(path) || !DocumentColumns(path).empty();
  return RefuseUnused(plan->config, {.subject = path, .is_text_file = text});
}

// Sets fields that are still empty, and lists them.
class EmptyFields {
 public:
  void Set(const char* field, const std::string& value, std::string* member) {
    if (value.empty() || !member->empty()) return;
    *member = value;
    Note(StrCat("`", field, "` ", value));
  }
  void Note(std::string text) { set_.push_back(std::move(text)); }
  // Returns "origin: `resize` crop, …"; "" if nothing was set.
  std::string Describe(const std::string& origin) const {
    return set_.empty() ? "" : StrCat(origin, ": ", absl::StrJoin(set_, ", "));
  }

 private:
  std::vector<std::string> set_;
};

// Reads pictures as the files of a recognizer say, where the user does not.
void TakePictureForm(ReadingPlan* plan) {
  const auto takes_colors = [](const ModelInput& input) { return input.dims.size() == 4 && input.dims[1] == 3; };
  const PictureForm& form = plan->alphabet.pictures;
  if (form.normalize.empty() || std::ranges::none_of(plan->model.inputs(), takes_colors)) return;
  EmptyFields fields;
  fields.Set("normalize", form.normalize, &plan->config.normalize);
  fields.Set("channel_order", form.channel_order, &plan->config.channel_order);
  plan->pictures_note = fields.Describe("pixels as models of PP-OCR take them");
}

// Reads pictures as preprocessor_config.json says, where neither the user, an earlier training nor the model does.
// Returns the filter that it asks for.
std::optional<Filter> TakeProcessorConfig(ReadingPlan* plan) {
  if (plan->before.has_value()) return std::nullopt;
  const ProcessorConfig processor = ReadProcessorConfig(plan->model.path());
  const std::vector<ModelInput>& inputs = plan->model.inputs();
  const auto picture = std::ranges::find_if(inputs, [](const ModelInput& input) {
    return input.dims.size() == 4 && (input.dims[1] == 3 || input.dims[1] == 1 || input.dims[1] < 0);
  });
  if (picture == inputs.end()) return std::nullopt;
  EmptyFields fields;
  const bool declares = !FindModelMetadata(plan->model, "Image.NominalPixelRange").empty();
  if (!declares) fields.Set("normalize", processor.normalize, &plan->config.normalize);
  const std::vector<std::string>& names = picture->dim_names;
  const bool sets_size = names.size() == 4 && (plan->dims.contains(names[2]) || plan->dims.contains(names[3]));
  const bool is_open = picture->dims[2] < 0 && picture->dims[3] < 0 && !sets_size;
  if (is_open && processor.height > 0)
    fields.Set("image_size", StrCat(processor.height, "x", processor.width), &plan->config.image_size);
  fields.Set("resize", processor.resize, &plan->config.resize);
  if (processor.filter.has_value()) fields.Note(StrCat("resample ", FilterName(*processor.filter)));
  if (std::string note = fields.Describe(StrCat("pictures as ", processor.path, " says")); !note.empty())
    plan->pictures_note = std::move(note);
  return processor.filter;
}

// Finds the height of lines of text, and their channels, where the model leaves them open, but takes one only.
void FindLineForm(ReadingPlan* plan) {
  ImageOptions& images = plan->options.images;
  PictureSizes& sizes = *images.sizes;
  const auto is_accepted = [&] { return FindSizeMultiple(plan->config, plan->model, plan->loss, images).ok(); };
  const int64_t known = plan->alphabet.pictures.height;
  if (known == 0 && is_accepted()) return;
  const ImageOptions open = images;
  const auto input = std::ranges::find(plan->model.inputs(), sizes.input, &ModelInput::name);
  const bool any_channels = !plan->before.has_value() && input->dims[images.channels_last ? 3 : 1] < 0;
  std::vector<int64_t> heights = {sizes.height};
  if (sizes.height == 0) heights = ListLineHeights(plan->config, known);
  for (const int64_t height : heights) {
    for (const int channels : {open.channels, any_channels ? 1 : open.channels}) {
      sizes.height = height;
      images.channels = channels;
      if (is_accepted()) return;
    }
  }
  images = open;
}

absl::Status PlanPictures(const std::optional<Filter>& filter, ReadingPlan* plan) {
  ImageOptions& images = plan->options.images;
  ASSIGN_OR_RETURN(images, PlanImages(plan->config, MoveBatchFirst(plan->model.inputs(), plan->import.batch_axes),
                                      plan->dims, plan->before));
  images.cache = plan->request.cache;
  if (filter.has_value()) images.filter = *filter;
  if (!images.sizes.has_value()) return absl::OkStatus();
  if (plan->alphabet.alphabet != nullptr) FindLineForm(plan);
  images.sizes->find_multiple = [config = plan->config, &model = plan->model, &loss = plan->loss, images] {
    return FindSizeMultiple(config, model, loss, images);
  };
  return absl::OkStatus();
}

// Plans classes, pictures and sounds.
absl::Status PlanSamples(ReadingPlan* plan) {
  const TrainConfig& config = plan->config;
  const DataRequest& request = plan->request;
  ASSIGN_OR_RETURN(plan->dims, ParseDims(config, plan->model));
  if (config.header != "auto" && !IsTableFile(request.path))
    return Invalid("`header` ", config.header, ": ", request.path, " is no table of text");
  RETURN_IF_ERROR(SetEncoding(plan));
  ASSIGN_OR_RETURN(plan->alphabet, FindAlphabet(config, plan->model, plan->before, plan->loss));
  TakePictureForm(plan);
  const std::optional<Filter> filter = TakeProcessorConfig(plan);
  const bool has_alphabet = plan->alphabet.alphabet != nullptr;
  const bool reads_texts = plan->alphabet.expects_texts && config.label.size() <= 1;
  DatasetOptions& options = plan->options;
  options.text_labels = reads_texts && request.want_label;
  if (has_alphabet) options.stream_window = 0;  // all labels get the length of the longest
  if (!has_alphabet) {
    ASSIGN_OR_RETURN(plan->classes, ChooseClasses(*plan));
  }
  if (request.want_label) options.folder_classes = plan->classes;
  if (IntegerClasses(options.folder_classes).empty()) options.class_names = options.folder_classes;
  ASSIGN_OR_RETURN(plan->import, MakeImportOptions(config, plan->model));
  if (has_alphabet) plan->import.batch_axes.merge(FindTimeFirstOutputs(plan->model));
  RETURN_IF_ERROR(PlanPictures(filter, plan));
  ASSIGN_OR_RETURN(options.audio, PlanAudio(config, plan->model, plan->dims, plan->before, reads_texts));
  return absl::OkStatus();
}

// Reads columns as text that may hold dialogues, unless they have the names of inputs.
void AddDialogueColumns(ReadingPlan* plan) {
  std::vector<std::string> names = ListDialogueColumns();
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::any_of(plan->model.inputs(), [&](const OnnxModel::Input& input) {
      return name == input.name || name == StripExporterAffixes(input.name);
    });
  });
  for (const std::string& name : {plan->config.prompt, plan->config.completion}) {
    if (!name.empty()) names.push_back(name);
  }
  plan->options.text.names.insert(names.begin(), names.end());
}

absl::Status PlanText(ReadingPlan* plan) {
  DataRequest& request = plan->request;
  TextSetup& text = plan->text;
  if (request.text.has_value()) {
    text = *request.text;
    if (text.columns.empty()) text.columns = DocumentColumns(request.path);
  } else {
    ASSIGN_OR_RETURN(text, MakeTextSetup(plan->config, plan->before, request.path, request.fit));
  }
  const TokenData tokens = FindTokenData(plan->config, request, text);
  if (tokens != TokenData::kNone) {
    ASSIGN_OR_RETURN(plan->language, FindLanguageModel(plan->config, plan->model, plan->loss));
  }
  plan->makes_blocks = plan->language.has_value() && tokens == TokenData::kTokens;
  request.hold_out = !plan->makes_blocks;
  if (plan->makes_blocks) plan->options.label.clear();
  plan->options.text.names.insert(text.columns.begin(), text.columns.end());
  if (plan->language.has_value() && plan->config.text.empty()) AddDialogueColumns(plan);
  return absl::OkStatus();
}

std::string ChooseNormalize(const TrainConfig& config, const std::optional<Preprocess>& before) {
  if (!config.normalize.empty()) return config.normalize;
  return before.has_value() && !before->normalize.empty() ? before->normalize : "unit";
}

}  // namespace

absl::StatusOr<ReadingPlan> PlanReading(const TrainConfig& config, const OnnxModel& model,
                                        const std::optional<Preprocess>& before, const DataRequest& request,
                                        const LossSpec& loss) {
  ReadingPlan plan{
      .model = model, .before = before, .loss = loss, .config = WithLabelColumns(config), .request = request};
  plan.request.folders = FindFolderColumns(config, before, request.path, request.want_label);
  plan.class_labels = FindClassLabelKeys(loss);
  plan.options = {.label = plan.config.label, .stream_window = StreamWindow(plan), .eval_split = request.eval_split};
  if (plan.config.label.empty() && before.has_value()) plan.options.label = before->label;
  RETURN_IF_ERROR(PlanSamples(&plan));
  plan.normalize = ChooseNormalize(plan.config, before);
  RETURN_IF_ERROR(PlanText(&plan));
  plan.constants = FindConstantTexts(plan.config, model);
  ASSIGN_OR_RETURN(plan.columns, ParseInputs(plan.config.input, plan.constants));
  if (before.has_value()) plan.columns.insert(before->inputs.begin(), before->inputs.end());
  plan.request.raw_inputs = ListRawInputs(model.inputs(), plan.columns);
  return plan;
}

}  // namespace onnxtrain
