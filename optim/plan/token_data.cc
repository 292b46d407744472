#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/block_columns.h"
#include "frontend/data/text/pair_rows.h"
#include "optim/plan/chat_data.h"
#include "optim/plan/language_data.h"
#include "optim/plan/packing.h"

namespace onnxtrain {

TokenData FindTokenData(const TrainConfig& config, const DataRequest& request, const TextSetup& text) {
  if (!config.label.empty() || !config.head.empty() || !config.encode.empty() || !config.fill.empty())
    return TokenData::kNone;
  if (!text.columns.empty()) return TokenData::kTokens;
  const auto found = FindSource(request.path);
  if (!found.ok()) return TokenData::kNone;
  if (found->source->tokens != Source::Tokens::kNone || HasSuffix(found->path, {".npy"}, true))
    return TokenData::kTokens;
  return found->source->is_table ? TokenData::kDialogues : TokenData::kNone;
}

std::vector<std::string> DocumentColumns(const std::string& path) {
  const auto found = FindSource(path);
  const bool documents = found.ok() && found->source->tokens == Source::Tokens::kDocuments;
  return documents ? std::vector<std::string>{"text"} : std::vector<std::string>();
}

int64_t TrainedLength(const std::optional<Preprocess>& before, const std::string& input) {
  if (!before.has_value()) return 0;
  const auto layout = before->layout.find(input);
  return layout != before->layout.end() && layout->second.size() == 1 ? layout->second[0] : 0;
}

absl::Status WithPath(const absl::Status& status, const std::string& path) {
  const std::string name = IsStdin(path) ? kStdinName : SourcePath(path);
  const std::string_view message = ToStd(status.message());
  const bool named = message.starts_with(name + "/") || message.find(name + ": ") != std::string_view::npos;
  return named ? status : Annotate(status, StrCat(IsStdin(path) ? name : path, ": "));
}

absl::Status MakeBlocks(const TrainConfig& config, const LanguageModel& model, const BlockRequest& request,
                        const std::optional<DialogueForm>& form, bool want_label, OpenedSamples* samples,
                        OpenedData* opened, BindSpec* spec) {
  auto data = form.has_value() ? MakeChatData(config, model, request, *form, samples->dataset, &opened->text)
                               : MakeLanguageData(config, model, request, samples->dataset, &opened->text);
  if (!data.ok()) return WithPath(data.status(), request.path);
  samples->dataset = data->blocks;
  samples->held_out = data->held_out;
  samples->notes.insert(samples->notes.end(), data->notes.begin(), data->notes.end());
  opened->bound.text_unit = data->unit;
  if (opened->text.packed.value_or(false)) opened->bound.packed = FindPackedInputs(*request.model);
  opened->own_loss = model.own_loss;
  spec->first_token_column = 0;
  spec->token_blocks = true;
  const std::vector<Column>& columns = samples->dataset->columns();
  const auto name = [&](BlockRole role) { return columns[static_cast<size_t>(role)].name; };
  if (want_label) spec->label = {name(BlockRole::kLabels)};
  if (want_label && form.has_value() && form->kind == DialogueForm::Kind::kPreference)
    spec->own_labels = {{kRejectedLabel, {kRejectedLabel}}, {kReferenceLabel, {kReferenceLabel}}};
  if (!model.label_input.empty())
    spec->inputs[model.label_input] = {name(model.shifts_labels ? BlockRole::kOwnLabels : BlockRole::kLabels)};
  return absl::OkStatus();
}

}  // namespace onnxtrain
