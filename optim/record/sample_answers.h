// Answers prompts with the weights of a run, so that people can see what it learns (`sample_prompts`).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/generate/prompt_rows.h"
#include "optim/generate/text_model.h"
#include "optim/generate/write_text.h"
#include "optim/plan/training_run.h"

namespace onnxtrain {

// An answer: a line of samples.jsonl.
struct SampleAnswer {
  int64_t step = 0, number = 0;  // updates before it; number of the prompt, from 0
  std::string prompt, answer, reference;
  bool has_reference = false;
  int64_t tokens = 0;
  bool ended = false;  // the model has ended the answer
};

// Reads the answers of a run, without an incomplete last line. Empty if the file does not exist.
std::vector<SampleAnswer> ReadSampleAnswers(const std::string& path);

class SampleWriter {
 public:
  // Reads the prompts and makes the decoder, so that a run without usable ones fails before it writes anything. `run`
  // must outlive the writer.
  static absl::StatusOr<std::unique_ptr<SampleWriter>> Open(const TrainingRun& run);
  // Keeps the lines of `path` up to update `kept`; -1: none.
  absl::Status OpenFile(const std::string& path, int64_t kept);

  // Answers all prompts with the weights that evaluations use, and appends the answers to the file. Returns a line
  // about the first one. Fails with kCancelled if a signal ends the run.
  absl::StatusOr<std::string> Write(int64_t step);

 private:
  SampleWriter(const TrainingRun& run, Prompts prompts) : run_(run), prompts_(std::move(prompts)) {}
  absl::Status ReadPrompts();
  absl::Status OpenDecoder();
  absl::StatusOr<std::vector<WrittenText>> Answer();

  const TrainingRun& run_;
  const Prompts prompts_;
  std::string path_;
  std::vector<PromptRow> rows_;
  std::vector<std::vector<int64_t>> asked_;  // the prompts of rows_
  std::unique_ptr<TextDecoder> decoder_;
  std::string first_;  // the first answer of the evaluation before
};

}  // namespace onnxtrain
