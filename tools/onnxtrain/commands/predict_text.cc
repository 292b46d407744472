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

bool WritesJson(const std::string& out) { return HasSuffix(out, {".jsonl", ".ndjson"}, false); }

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

std::string Table(const std::string& out, const std::vector<PromptRow>& rows, const std::vector<WrittenText>& written) {
  const bool json = WritesJson(out);
  std::string text = json ? "" : "sample,prompt,prediction,reference,tokens,ended\n";
  for (size_t i = 0; i < rows.size(); ++i) text += json ? JsonLine(rows[i], written[i]) : CsvLine(rows[i], written[i]);
  return text;
}

absl::StatusOr<std::vector<WrittenText>> Answer(const TrainConfig& config, const TextModel& model,
                                                const Prompts& prompts, const std::vector<PromptRow>& rows) {
  std::vector<std::vector<int64_t>> asked;
  int64_t longest = 0;
  for (const PromptRow& row : rows) {
    asked.push_back(row.ids);
    longest = std::max<int64_t>(longest, std::ssize(row.ids));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, LoadBackend(config));
  const int64_t exported = ExportedBatch(*model.model);
  const int64_t together = config.batch_size > 0 ? config.batch_size : exported > 1 ? exported : kMostRows;
  const DecoderRequest request{.model = model.model,
                               .loss = model.loss,
                               .backend = backend.get(),
                               .rows = std::min<int64_t>(together, std::ssize(rows)),
                               .capacity = longest + config.max_new_tokens};
  ASSIGN_OR_RETURN(const auto decoder, MakeDecoder(config, prompts, request));
  for (const PromptRow& row : rows) {
    if (std::ssize(row.ids) >= decoder->capacity())
      return Invalid(config.data, ": row ", row.row, ": the prompt has ", row.ids.size(), " tokens, of at most ",
                     decoder->capacity(), " with its answer");
  }
  return WriteAnswers(*decoder, prompts, asked, MakeGenerationSpec(config, prompts), nullptr);
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
  ASSIGN_OR_RETURN(const PromptFile file, ReadPromptFile(config, config.data, columns, *prompts));
  if (file.rows.empty() && IsStdin(config.data))  // which cannot be read again
    return Invalid(kStdinName, ": has no column of prompts (`loss` mse writes the scores of token ids)");
  if (file.rows.empty()) return false;
  if (!file.unreadable.empty())
    Warn(StrCat("left out ", file.unreadable.size(), " prompts that cannot be read (", file.unreadable[0], " …)"));
  for (const char* field : {"max_length", "truncate", "loss_on"}) {
    if (IsSpecified(config, field)) return Invalid("`", field, "`: has no effect on prompts (`max_new_tokens`)");
  }
  LogInfo(config, "a language model: writes its answers as text (`loss` mse writes the scores of all tokens)");
  ASSIGN_OR_RETURN(const std::vector<WrittenText> written, Answer(config, model, *prompts, file.rows));
  const std::string text = Table(out, file.rows, written);
  if (out == "-") {
    RETURN_IF_ERROR(Print(text));
    return true;
  }
  RETURN_IF_ERROR(WriteTextFile(out, text));
  RETURN_IF_ERROR(Print(PageRow("written", StrCat(out, ": ", FormatWithCommas(std::ssize(file.rows)), " answers"))));
  return true;
}

}  // namespace onnxtrain::cli
