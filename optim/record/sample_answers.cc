#include "optim/record/sample_answers.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/block_columns.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

constexpr int64_t kMostRows = 8;  // prompts that are answered together

std::string ToJsonLine(const SampleAnswer& a) {
  Json json = {{"step", a.step}, {"prompt_number", a.number}, {"prompt", a.prompt}, {"answer", a.answer}};
  if (a.has_reference) json["reference"] = a.reference;
  json["tokens"] = a.tokens;
  json["ended"] = a.ended;
  return WriteJson(json) + "\n";
}

SampleAnswer FromJson(const Json& json) {
  SampleAnswer a{.step = json.value("step", int64_t{0}),
                 .number = json.value("prompt_number", int64_t{0}),
                 .prompt = json.value("prompt", ""),
                 .answer = json.value("answer", ""),
                 .reference = json.value("reference", ""),
                 .has_reference = json.contains("reference"),
                 .tokens = json.value("tokens", int64_t{0}),
                 .ended = json.value("ended", false)};
  return a;
}

// Returns the number of prompts that `sample_prompts` asks for; 0: it names a file.
int64_t ParseCount(const std::string& text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() ? count : 0;
}

// Returns the beginning of a text on one line.
std::string Shortened(const std::string& text) {
  constexpr size_t kMost = 60;
  const std::string line = absl::StrReplaceAll(text, {{"\n", "↵"}});
  if (line.size() <= kMost) return line;
  size_t end = kMost;
  while (end > 0 && (line[end] & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "…";
}

// Returns the lines of a file up to update `kept`.
std::string KeepLines(const std::string& path, int64_t kept) {
  std::string text;
  if (kept < 0) return text;
  for (const SampleAnswer& answer : ReadSampleAnswers(path)) {
    if (answer.step <= kept) text += ToJsonLine(answer);
  }
  return text;
}

}  // namespace

std::vector<SampleAnswer> ReadSampleAnswers(const std::string& path) {
  std::vector<SampleAnswer> answers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Json json = ParseJson<Json>(line);
    if (json.is_object()) answers.push_back(FromJson(json));
  }
  return answers;
}

absl::StatusOr<std::unique_ptr<SampleWriter>> SampleWriter::Open(const TrainingRun& run) {
  if (run.session->holds_partial_weights() || run.config.pipeline > 1 || run.config.tensor > 1)
    return Invalid("no rank has all weights to write text with (`pipeline`, `tensor`, `shard` full)");
  if (!HasBlockColumns(*run.eval.dataset)) return Invalid("the samples are not those of a language model");
  ASSIGN_OR_RETURN(Prompts prompts, Prompts::Make(run.config, run.data.train.text));
  std::unique_ptr<SampleWriter> writer(new SampleWriter(run, std::move(prompts)));
  RETURN_IF_ERROR(writer->ReadPrompts());
  RETURN_IF_ERROR(writer->OpenDecoder());
  return writer;
}

absl::Status SampleWriter::OpenFile(const std::string& path, int64_t kept) {
  path_ = path;
  return WriteTextFile(path, KeepLines(path, kept));
}

absl::Status SampleWriter::ReadPrompts() {
  const std::string& from = run_.config.sample_prompts;
  const int64_t count = ParseCount(from);
  if (count > 0) {
    ASSIGN_OR_RETURN(rows_, TakePrompts(run_.config, *run_.eval.dataset, count, prompts_));
  } else {
    TrainConfig config = run_.config;
    config.on_bad_sample = "abort";  // rows are few and were written to be seen
    ASSIGN_OR_RETURN(const auto file, PromptRows::Open(config, from, run_.data.train.text.columns, prompts_));
    if (file->empty()) return Invalid("has no prompts (a column messages, prompt, question or text …)");
    for (int64_t i = 0; i < file->size(); ++i) {
      ASSIGN_OR_RETURN(rows_.emplace_back(), file->Read(i));
    }
  }
  for (const PromptRow& row : rows_) asked_.push_back(row.ids);
  return absl::OkStatus();
}

absl::Status SampleWriter::OpenDecoder() {
  int64_t longest = 0;
  for (const auto& ids : asked_) longest = std::max<int64_t>(longest, std::ssize(ids));
  const int64_t fixed = run_.session->fixed_batch();
  const DecoderRequest request{.model = run_.data.model,
                               .loss = run_.data.loss,
                               .backend = run_.backend.get(),
                               .session = run_.session.get(),
                               .rows = fixed > 0 ? fixed : std::min<int64_t>(kMostRows, std::ssize(asked_)),
                               .capacity = longest + run_.config.max_new_tokens,
                               .compute = run_.precision.name == "bf16" ? DType::kBFloat16 : DType::kFloat32};
  ASSIGN_OR_RETURN(decoder_, MakeDecoder(run_.config, prompts_, request));
  if (longest >= decoder_->capacity())
    return Invalid("a prompt has ", longest, " tokens, of at most ", decoder_->capacity(), " with its answer");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WrittenText>> SampleWriter::Answer() {
  decoder_->WeightsChanged();
  return WriteAnswers(*decoder_, prompts_, asked_, MakeGenerationSpec(run_.config, prompts_), 0, run_.options.stop);
}

absl::StatusOr<std::string> SampleWriter::Write(int64_t step) {
  RETURN_IF_ERROR(run_.session->UseAverage(true));
  const auto answers = Answer();
  RETURN_IF_ERROR(run_.session->UseAverage(false));
  RETURN_IF_ERROR(answers.status());
  std::string lines;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const WrittenText& written = (*answers)[i];
    lines += ToJsonLine({.step = step,
                         .number = static_cast<int64_t>(i),
                         .prompt = rows_[i].prompt,
                         .answer = written.text,
                         .reference = rows_[i].reference,
                         .has_reference = !rows_[i].reference.empty(),
                         .tokens = written.tokens,
                         .ended = written.ended});
  }
  std::ofstream file(path_, std::ios::app);
  if (!file.write(lines.data(), std::ssize(lines)).flush())
    return absl::DataLossError(StrCat(path_, ": ", std::strerror(errno)));
  const bool same = std::exchange(first_, answers->front().text) == answers->front().text && step > 0;
  return StrCat("update ", step, ": ",
                same ? "the first prompt is answered as before" : StrCat("“", Shortened(answers->front().text), "”"));
}

}  // namespace onnxtrain
