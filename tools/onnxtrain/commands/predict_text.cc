// onnxtrain predict, for language models: writes the model's answer to each prompt, or the continuation of each text.
#include <algorithm>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"
#include "optim/generate/prompt_rows.h"
#include "optim/generate/text_model.h"
#include "optim/generate/write_text.h"
#include "optim/plan/chat_data.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/language_data.h"
#include "optim/plan/model_setup.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/inference.h"
#include "tools/onnxtrain/report/predictions.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

constexpr int64_t kMostRows = 8;  // prompts that are answered together, unless `batch_size` is set

// Returns true if the data may hold texts: a table, documents or a pipe.
bool MayHoldTexts(const std::string& path) {
  if (IsStdin(path)) return true;
  const auto found = FindSource(path);
  return found.ok() && (found->source->is_table || found->source->tokens == Source::Tokens::kDocuments);
}

// Makes prompts as those of training, if the model has a preprocess.json of texts, or else as `generate`.
absl::StatusOr<Prompts> OpenPrompts(const TrainConfig& config, const std::optional<Preprocess>& before) {
  if (!before.has_value() || before->text.columns.empty()) return Prompts::Open(config);
  ASSIGN_OR_RETURN(TextSetup setup, MakeTextSetup(config, before, "", false));
  if (config.chat_template == "none") return Prompts::Open(config);
  if (!config.chat_template.empty()) {
    ASSIGN_OR_RETURN(setup.chat_template, ReadChatTemplate(config.chat_template));
  }
  return Prompts::Make(config, std::move(setup));
}

std::string JsonLine(const PromptRow& row, const WrittenText& written) {
  OrderedJson json = {{"sample", row.row}, {"prompt", row.prompt}, {"prediction", written.text}};
  if (!row.reference.empty()) json["reference"] = row.reference;
  json["tokens"] = written.tokens;
  json["ended"] = written.ended;
  return WriteJson(json) + "\n";
}

std::string CsvLine(const PromptRow& row, const WrittenText& written) {
  return StrCat(row.row, ",", CsvField(row.prompt), ",", CsvField(written.text), ",", CsvField(row.reference), ",",
                written.tokens, ",", written.ended ? 1 : 0, "\n");
}

// The file of answers, or stdout for "-".
class AnswerFile {
 public:
  static absl::StatusOr<AnswerFile> Create(const std::string& path) {
    AnswerFile file(path);
    if (path != "-") {
      ASSIGN_OR_RETURN(AtomicFile atomic, AtomicFile::Create(path));
      file.file_.emplace(std::move(atomic));
    }
    if (!file.is_json_) RETURN_IF_ERROR(file.Append("sample,prompt,prediction,reference,tokens,ended\n"));
    return file;
  }

  absl::Status Add(const PromptRow& row, const WrittenText& written) {
    return Append(is_json_ ? JsonLine(row, written) : CsvLine(row, written));
  }
  absl::Status Finish() { return file_.has_value() ? file_->Commit() : absl::OkStatus(); }

 private:
  explicit AnswerFile(const std::string& path) : is_json_(HasSuffix(path, {".jsonl", ".ndjson"}, false)) {}

  absl::Status Append(const std::string& text) {
    if (!file_.has_value()) return Print(text);
    RETURN_IF_ERROR(file_->WriteAt(bytes_, std::as_bytes(std::span(text))));
    bytes_ += std::ssize(text);
    return absl::OkStatus();
  }

  bool is_json_;
  std::optional<AtomicFile> file_;
  int64_t bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<TextDecoder>> OpenDecoder(const TrainConfig& config, const TextModel& model,
                                                         const Prompts& prompts, const PromptRows& rows,
                                                         Backend* backend) {
  const int64_t exported = ExportedBatch(*model.model);
  const int64_t together = config.batch_size > 0 ? config.batch_size : exported > 1 ? exported : kMostRows;
  const DecoderRequest request{.model = model.model,
                               .loss = model.loss,
                               .backend = backend,
                               .rows = std::min(together, rows.size()),
                               .capacity = rows.longest() + config.max_new_tokens};
  ASSIGN_OR_RETURN(auto decoder, MakeDecoder(config, prompts, request));
  if (rows.longest() >= decoder->capacity())
    return Invalid(config.data, ": row ", rows.longest_row(), ": the prompt has ", rows.longest(),
                   " tokens, of at most ", decoder->capacity(), " with its answer");
  return decoder;
}

// Reads, answers and writes as many prompts at a time as the decoder has rows.
absl::Status AnswerAll(const TrainConfig& config, const TextModel& model, const Prompts& prompts,
                       const PromptRows& rows, AnswerFile* out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(config));
  ASSIGN_OR_RETURN(const auto decoder, OpenDecoder(config, model, prompts, rows, backend.get()));
  const GenerationSpec spec = MakeGenerationSpec(config, prompts);
  for (int64_t first = 0; first < rows.size(); first += decoder->rows()) {
    std::vector<PromptRow> group;
    std::vector<std::vector<int64_t>> asked;
    for (int64_t i = first; i < std::min(first + decoder->rows(), rows.size()); ++i) {
      ASSIGN_OR_RETURN(group.emplace_back(), rows.Read(i));
      asked.push_back(group.back().ids);
    }
    ASSIGN_OR_RETURN(const auto written, WriteAnswers(*decoder, prompts, asked, spec, first, nullptr));
    for (size_t i = 0; i < group.size(); ++i) RETURN_IF_ERROR(out->Add(group[i], written[i]));
  }
  return out->Finish();
}

}  // namespace

absl::StatusOr<bool> PredictText(const TrainConfig& given, const std::string& out) {
  TrainConfig config = given;
  config.data = FindEvalFile(given, false);
  if (IsSpecified(config, "loss") || config.data.empty() || !MayHoldTexts(config.data)) return false;
  ASSIGN_OR_RETURN(const std::optional<Preprocess> before, ReadPreprocess(config));
  ASSIGN_OR_RETURN(const TextModel model, OpenTextModel(config, before));
  ASSIGN_OR_RETURN(const auto language, FindLanguageModel(config, *model.model, model.loss));
  if (!language.has_value() || !language->own_loss.empty()) return false;
  const auto prompts = OpenPrompts(config, before);
  if (!prompts.ok() && (!config.tokenizer.empty() || !config.chat_template.empty())) return prompts.status();
  if (!prompts.ok()) return false;  // without a tokenizer, samples are token ids
  const std::vector<std::string> columns =
      config.text.empty() && before.has_value() ? before->text.columns : config.text;
  ASSIGN_OR_RETURN(const auto rows, PromptRows::Open(config, config.data, columns, *prompts));
  if (rows->empty() && IsStdin(config.data))  // which cannot be read again
    return Invalid(kStdinName, ": has no column of prompts (`loss` mse writes the scores of token ids)");
  if (rows->empty()) return false;
  if (rows->left_out() > 0)
    Warn(StrCat("left out ", rows->left_out(), " prompts that cannot be read (", rows->why_left_out(), " …)"));
  for (const char* field : {"max_length", "truncate", "loss_on"}) {
    if (IsSpecified(config, field)) return Invalid("`", field, "`: has no effect on prompts (`max_new_tokens`)");
  }
  LogInfo(config, "a language model: writes its answers as text (`loss` mse writes the scores of all tokens)");
  ASSIGN_OR_RETURN(AnswerFile file, AnswerFile::Create(out));
  RETURN_IF_ERROR(AnswerAll(config, model, *prompts, *rows, &file));
  if (out != "-")
    RETURN_IF_ERROR(Print(PageRow("written", StrCat(out, ": ", FormatWithCommas(rows->size()), " answers"))));
  return true;
}

}  // namespace onnxtrain::cli
