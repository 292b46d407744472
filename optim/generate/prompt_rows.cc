#include "optim/generate/prompt_rows.h"

#include <algorithm>
#include <optional>
#include <span>

#include "frontend/base/status.h"
#include "frontend/data/chat/dialogues.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/text/block_columns.h"
#include "frontend/data/text/text_encoding.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

// Returns the text of a message; "" if it has none.
std::string ContentText(const Json& message) {
  if (!message.contains("content")) return "";
  const Json& content = message["content"];
  if (content.is_string()) return content;
  std::string text;
  for (const Json& part : content.is_array() ? content : Json::array()) {
    if (part.is_object() && part.contains("text") && part["text"].is_string()) text += part["text"].get<std::string>();
  }
  return text;
}

class PromptReader : public PromptRows {
 public:
  PromptReader(const TrainConfig& config, std::string path, std::vector<std::string> columns, const Prompts& prompts)
      : config_(config), path_(std::move(path)), columns_(std::move(columns)), prompts_(prompts) {}

  absl::Status MeasureAll() {
    ASSIGN_OR_RETURN(const bool found, Open());
    for (int64_t i = 0; found && i < data_->size(); ++i) {
      const auto row = ReadRow(i);
      if (!row.ok()) {
        const absl::Status failed = Annotate(row.status(), StrCat(data_->Describe(i), ": "));
        if (config_.on_bad_sample != "skip") return failed;
        if (++left_out_ == 1) why_ = ToStd(failed.message());
        continue;
      }
      rows_.push_back(i);
      if (std::ssize(row->ids) <= longest_) continue;
      longest_ = std::ssize(row->ids);
      longest_row_ = i;
    }
    if (rows_.empty() && left_out_ > 0) return Invalid(why_, " (and no other prompt can be read)");
    return absl::OkStatus();
  }

  absl::StatusOr<PromptRow> Read(int64_t i) const override {
    ASSIGN_OR_RETURN(PromptRow row, ReadRow(rows_[i]));
    row.row = rows_[i];
    return row;
  }

 private:
  // Returns false if there is no column of prompts.
  absl::StatusOr<bool> Open() {
    DatasetOptions options;
    options.encoding = config_.encoding;
    for (const std::string& name : ListDialogueColumns()) options.text.names.insert(name);
    options.text.names.insert({"text", config_.prompt, config_.completion});
    options.text.names.insert(columns_.begin(), columns_.end());
    const bool lines = HasSuffix(path_, {".txt"}, true) && SourcePath(path_) == path_;
    ASSIGN_OR_RETURN(data_, OpenDataset(lines ? "lines:" + path_ : path_, options));
    const std::optional<DialogueForm> form = FindForm();
    if (form.has_value()) form_ = *form;
    return form.has_value();
  }

  std::optional<DialogueForm> FindForm() const {
    const auto is_text = [&](const std::string& name) {
      const auto found = std::ranges::find(data_->columns(), name, &Column::name);
      return found != data_->columns().end() && found->text;
    };
    const auto name = [&](const std::string& prompt, const std::string& answer) {
      return DialogueForm{
          .kind = DialogueForm::Kind::kCompletion, .first = prompt, .second = is_text(answer) ? answer : ""};
    };
    if (is_text(config_.prompt)) return name(config_.prompt, config_.completion);
    std::optional<DialogueForm> form = FindPromptForm(*data_);
    const bool plain = form.has_value() && form->kind == DialogueForm::Kind::kInstruction && !prompts_.has_template();
    if (plain) form->kind = DialogueForm::Kind::kCompletion;  // a question is a text to continue
    if (form.has_value() || columns_.empty() || !is_text(columns_[0])) return form;
    return name(columns_[0], columns_.size() > 1 ? columns_[1] : "");
  }

  absl::StatusOr<PromptRow> ReadRow(int64_t i) const {
    if (form_.kind == DialogueForm::Kind::kPreference) {
      ASSIGN_OR_RETURN(const DialoguePair pair, ReadDialoguePair(*data_, i, form_, prompts_.texts_are_messages()));
      return MakeRow(pair.chosen);
    }
    ASSIGN_OR_RETURN(const Dialogue dialogue, ReadDialogue(*data_, i, form_, prompts_.texts_are_messages()));
    return MakeRow(dialogue);
  }

  absl::StatusOr<PromptRow> MakeRow(const Dialogue& dialogue) const {
    PromptRow row;
    if (dialogue.messages.is_null()) {
      ASSIGN_OR_RETURN(row.ids, prompts_.EncodePlain(dialogue.prompt));
      row.reference = dialogue.answer;
    } else {
      ASSIGN_OR_RETURN(row, MakeChat(dialogue));
    }
    if (row.ids.empty()) return Invalid("the prompt is empty");
    row.prompt = RepairUtf8(prompts_.Join(row.ids));
    return row;
  }

  // Answers the messages before the last answer.
  absl::StatusOr<PromptRow> MakeChat(const Dialogue& dialogue) const {
    if (!prompts_.has_template()) return Invalid("holds messages, and there is no chat template (`chat_template`)");
    const Json& all = dialogue.messages;
    const auto is_answer = [](const Json& message) { return message.value("role", "") == "assistant"; };
    auto asked = static_cast<size_t>(dialogue.prompt_messages);
    if (asked == 0) asked = all.size() - (is_answer(all.back()) ? 1 : 0);
    if (asked == 0) return Invalid("no message precedes the answer");
    PromptRow row;
    if (asked < all.size() && is_answer(all[asked])) row.reference = ContentText(all[asked]);
    const Json messages(all.begin(), all.begin() + static_cast<ptrdiff_t>(asked));
    ASSIGN_OR_RETURN(row.ids, prompts_.EncodeChat(messages, dialogue.tools));
    return row;
  }

  const TrainConfig& config_;
  const std::string path_;
  const std::vector<std::string> columns_;
  const Prompts& prompts_;
  std::shared_ptr<const Dataset> data_;
  DialogueForm form_;
};

// Tokens of a sample, and for each whether it carries loss.
struct MarkedTokens {
  std::vector<int64_t> ids;
  std::vector<bool> trained;
};

// Returns the samples of a row, of which packed rows have several.
absl::StatusOr<std::vector<MarkedTokens>> ReadSamples(const Dataset& samples, int64_t row, int64_t ignore_index) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, ReadBlockColumn(samples, row, BlockRole::kIds));
  ASSIGN_OR_RETURN(const std::vector<int64_t> mask, ReadBlockColumn(samples, row, BlockRole::kMask));
  ASSIGN_OR_RETURN(const std::vector<int64_t> positions, ReadBlockColumn(samples, row, BlockRole::kPositions));
  ASSIGN_OR_RETURN(const std::vector<int64_t> labels, ReadBlockColumn(samples, row, BlockRole::kLabels));
  std::vector<MarkedTokens> read;
  for (size_t k = 0; k < ids.size() && mask[k] != 0; ++k) {
    if (positions[k] == 0) read.emplace_back();
    read.back().ids.push_back(ids[k]);
    read.back().trained.push_back(positions[k] > 0 && labels[k - 1] != ignore_index);
  }
  return read;
}

// Cuts a sample into prompt and reference. nullopt: it has no prompt or no answer.
std::optional<PromptRow> CutSample(const MarkedTokens& sample, int64_t most, const Prompts& prompts) {
  const auto size = std::ssize(sample.ids);
  ptrdiff_t begin = std::ranges::find(sample.trained, true) - sample.trained.begin();
  ptrdiff_t end = std::find(sample.trained.begin() + begin, sample.trained.end(), false) - sample.trained.begin();
  if (begin == 1 && end == size) {
    begin = std::min<ptrdiff_t>(std::max<ptrdiff_t>(size / 2, 1), kMostPromptTokens);
    end = std::min<ptrdiff_t>(end, begin + most);
  }
  const auto& stop = prompts.stop();
  const auto ids = sample.ids.begin();
  end = std::find_first_of(ids + begin, ids + end, stop.begin(), stop.end()) - ids;
  if (begin == 0 || begin >= end) return std::nullopt;
  PromptRow row{.ids = {ids, ids + begin}};
  row.prompt = RepairUtf8(prompts.Join(row.ids));
  row.reference = RepairUtf8(prompts.Join(std::vector<int64_t>(ids + begin, ids + end)));
  return row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromptRows>> PromptRows::Open(const TrainConfig& config, const std::string& path,
                                                             const std::vector<std::string>& columns,
                                                             const Prompts& prompts) {
  auto rows = std::make_unique<PromptReader>(config, path, columns, prompts);
  RETURN_IF_ERROR(rows->MeasureAll());
  return rows;
}

absl::StatusOr<std::vector<PromptRow>> TakePrompts(const TrainConfig& config, const Dataset& samples, int64_t count,
                                                   const Prompts& prompts) {
  std::vector<PromptRow> rows;
  for (int64_t i = 0; i < samples.size() && std::ssize(rows) < count; ++i) {
    ASSIGN_OR_RETURN(const std::vector<MarkedTokens> read, ReadSamples(samples, i, config.ignore_index));
    for (const MarkedTokens& sample : read) {
      std::optional<PromptRow> row = CutSample(sample, config.max_new_tokens, prompts);
      if (row.has_value() && std::ssize(rows) < count) rows.push_back(*std::move(row));
    }
  }
  if (rows.empty()) return Invalid("no sample has a prompt and an answer");
  return rows;
}

}  // namespace onnxtrain
