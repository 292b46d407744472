// Opens the samples of a model and adds the columns that its inputs and labels need: classes of texts, lengths of
// sounds, tokens (open_stages.h).
#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/bind/sound_lengths.h"
#include "frontend/data/bind/text_labels.h"
#include "frontend/data/text/token_blocks.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/chat_data.h"
#include "optim/plan/open_stages.h"

namespace onnxtrain {
namespace {

BindSpec MakeBindSpec(const ReadingPlan& plan) {
  BindSpec spec{.want_label = plan.request.want_label,
                .read_labels = plan.request.want_label,
                .dims = plan.dims,
                .ignore_index = plan.loss.ignore_index,
                .leave_out = plan.request.leave_out};
  if (plan.request.want_label) spec.classes = plan.classes;
  spec.skip_bad = plan.config.on_bad_sample == "skip";
  if (plan.before.has_value()) {
    spec.inputs = plan.before->inputs;
    spec.label = plan.before->label;
  }
  return spec;
}

// Adds columns for inputs that take the lengths of sounds.
void AddSoundLengths(const ReadingPlan& plan, OpenedSamples* samples) {
  const std::vector<Column>& columns = samples->dataset->columns();
  const auto sound = std::ranges::find_if(columns, [](const Column& column) { return column.sample_rate > 0; });
  if (sound == columns.end()) return;
  std::set<std::string> fed;
  for (const auto& [input, names] : plan.columns) {
    if (std::ranges::all_of(names, [&](const std::string& name) { return HasColumn(columns, name); }))
      fed.insert(input);
  }
  for (const auto& [input, text] : plan.constants) fed.insert(input);
  samples->dataset = WithSoundLengths(samples->dataset, static_cast<int>(sound - columns.begin()), plan.model.inputs(),
                                      fed, &samples->notes);
}

// Replaces the label by its classes if it is a text. Labels that are numbers stay as they are.
absl::Status ReadTextLabels(const ReadingPlan& plan, OpenedSamples* samples, BindSpec* spec) {
  if (!plan.options.text_labels) return absl::OkStatus();
  const std::vector<Column>& columns = samples->dataset->columns();
  const auto label = std::ranges::find_if(columns, [&](const Column& column) {
    return column.text && !plan.options.text.contains(column.name) && column.name != plan.request.leave_out;
  });
  if (label == columns.end()) return absl::OkStatus();
  if (plan.alphabet.alphabet == nullptr)
    return Invalid(plan.request.path, ": column '", label->name,
                   "' holds texts, and nothing names the characters of the ",
                   "model's classes (`class_map` FILE has one per line)");
  const auto c = static_cast<int>(label - columns.begin());
  spec->label = {label->name};
  ASSIGN_OR_RETURN(samples->dataset,
                   WithTextClasses(samples->dataset, c, *plan.alphabet.alphabet, spec->ignore_index, spec->skip_bad));
  if (!plan.alphabet.note.empty()) samples->notes.push_back(plan.alphabet.note);
  return absl::OkStatus();
}

// Returns true if the data has columns for the model's inputs, instead of the texts that training used.
bool IsTokenized(const ReadingPlan& plan, const std::vector<Column>& columns) {
  const bool asked_for_texts = !plan.config.text.empty() && !plan.request.text.has_value();
  const auto has = [&](const std::string& name) { return HasColumn(columns, name); };
  if (asked_for_texts || std::ranges::any_of(plan.text.columns, has)) return false;
  return std::ranges::any_of(plan.model.inputs(), [&](const OnnxModel::Input& input) {
    return has(input.name) || has(std::string(StripExporterAffixes(input.name)));
  });
}

// Holds out the samples if OpenSamples has left that to the caller.
absl::Status HoldOut(const ReadingPlan& plan, OpenedSamples* samples) {
  if (!plan.request.fit || plan.config.eval_split.empty() || !plan.config.eval_data.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(samples->held_out, HoldOutSamples(plan.config, *samples->dataset, plan.options));
  return absl::OkStatus();
}

// Tokenizes the text; makes blocks of tokens for a language model.
absl::Status ReadTokens(const ReadingPlan& plan, ModelSamples* read) {
  const std::string& path = plan.request.path;
  OpenedSamples& samples = read->samples;
  TextSetup& text = read->data.text = plan.text;
  if (!text.columns.empty() && IsTokenized(plan, samples.dataset->columns())) {
    samples.notes.push_back(
        StrCat("there is no column '", text.columns[0], "' of text: the columns of tokens feed the model"));
    text = {};
  }
  if (!text.found_in.empty())
    samples.notes.push_back(StrCat("the tokenizer is the one in ", text.found_in, " (`tokenizer`)"));
  std::optional<DialogueForm> form;
  if (plan.language.has_value()) {
    ASSIGN_OR_RETURN(form, FindDialogues(plan.config, *samples.dataset, text));
  }
  if (!form.has_value()) RETURN_IF_ERROR(RefuseUnused(plan.config, {.subject = path, .has_answers = false}));
  if (form || (plan.makes_blocks && (!text.columns.empty() || IsTokenSequence(*samples.dataset)))) {
    const BlockRequest block_request{.path = path,
                                     .fit = plan.request.fit,
                                     .trained_length = TrainedLength(plan.before, plan.language->ids),
                                     .ignore_index = plan.loss.ignore_index,
                                     .options = &plan.options,
                                     .model = &plan.model};
    return MakeBlocks(plan.config, *plan.language, block_request, form, plan.request.want_label, &samples, &read->data,
                      &read->spec);
  }
  if (text.columns.empty()) {
    if (!plan.request.text.has_value()) RETURN_IF_ERROR(RefuseUnused(plan.config, {.has_text_columns = false}));
    return plan.makes_blocks ? HoldOut(plan, &samples) : absl::OkStatus();
  }
  auto tokens = AddTokens(plan.config, plan.model, &text, samples.dataset, &samples.notes);
  if (!tokens.ok()) return Annotate(tokens.status(), StrCat(path, ": "));
  samples.dataset = tokens->dataset;
  read->spec.first_token_column = tokens->first_column;
  return absl::OkStatus();
}

}  // namespace

absl::Status ExplainBadSample(const ReadingPlan& plan, const absl::Status& status) {
  const std::string message(ToStd(status.message()));
  const bool skips = plan.config.on_bad_sample == "skip";
  if (!plan.before.has_value() || skips || message.find(": row ") == std::string::npos) return status;
  return Invalid(message, " (`on_bad_sample` skip leaves such samples out)");
}

absl::StatusOr<ModelSamples> ReadModelSamples(const ReadingPlan& plan) {
  auto samples = OpenSamples(plan.config, plan.before, plan.request, plan.options, plan.loss);
  if (!samples.ok()) return ExplainBadSample(plan, Annotate(samples.status(), StrCat("`", plan.request.field, "`: ")));
  ModelSamples read{.samples = *std::move(samples), .spec = MakeBindSpec(plan)};
  RETURN_IF_ERROR(ReadTextLabels(plan, &read.samples, &read.spec));
  AddSoundLengths(plan, &read.samples);
  RETURN_IF_ERROR(ReadTokens(plan, &read));
  const std::vector<Column>& columns = read.samples.dataset->columns();
  if (plan.request.want_label) RETURN_IF_ERROR(AddOwnLabels(plan.loss, plan.model, columns, &read.spec));
  OpenedData& data = read.data;
  data.own_columns = static_cast<int>(columns.size());
  data.classes = plan.classes;
  data.transforms = read.samples.transforms;
  data.held_out = read.samples.held_out;
  data.alphabet = plan.alphabet.alphabet;
  return read;
}

}  // namespace onnxtrain
