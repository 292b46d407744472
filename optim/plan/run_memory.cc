#include "optim/plan/run_memory.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/data/text/tokenizer.h"
#include "optim/parallel/shard.h"
#include "optim/plan/memory_ladder.h"
#include "optim/step/session.h"
#include "optim/step/training_state.h"

namespace onnxtrain {
namespace {

// Limits on the numbers in the predictions of a sample, of a batch, and of all samples.
constexpr int64_t kMostInSample = int64_t{1} << 24, kMostInBatch = int64_t{1} << 22, kMostInAll = int64_t{1} << 28;
constexpr int64_t kMostOfPositions = 200;

}  // namespace

ReportedSamples PlanReportedSamples(const LossChoice& loss, const std::vector<FeedSpec>& specs, int64_t most,
                                    int64_t micro_batch, int64_t fixed_batch) {
  const LabelForm form = loss.leading().form;
  constexpr int64_t kStepsPerCharacter = 8;
  const bool texts = form == LabelForm::kSequence && loss.alphabet != nullptr;
  if (form == LabelForm::kNone || loss.leading().onnx != nullptr) return {};
  if (form == LabelForm::kSequence && !texts) return {};
  const auto label = std::ranges::find(specs, loss.leading().feed, &FeedSpec::feed);
  const int64_t targets = label == specs.end() ? 1 : std::max<int64_t>(1, label->sample.elements());
  const bool positions = targets > 1 && loss.num_classes() > 1;
  const int64_t numbers = targets * (positions ? loss.num_classes() : 1) * (texts ? kStepsPerCharacter : 1);
  if (numbers > kMostInSample) return {};
  // Pictures of several sizes are predicted one by one.
  const bool sized = std::ranges::any_of(specs, [](const FeedSpec& spec) { return spec.height_axis >= 0; });
  const int64_t batch = sized ? 1 : std::clamp<int64_t>(kMostInBatch / numbers, 1, micro_batch);
  return {.most = std::min({most, kMostInAll / numbers, positions ? kMostOfPositions : most}),
          .batch = fixed_batch > 0 ? fixed_batch : batch};
}

namespace {

constexpr int64_t kFreeShare = 4;  // without a budget, a copy of the state may take 1/kFreeShare of the free memory

const ModelPart& PartOf(const SessionOptions& options) {
  return options.tensor.on() ? options.tensor : options.pipeline;
}

// Returns the bytes that this rank saves: its part if the ranks divide the state, else all of it on the first rank.
int64_t SavedBytes(const TrainingRun& run, const SessionOptions& options) {
  if (run.data.synthetic) return 0;
  const int64_t bytes = run.state_bytes;
  if (options.ranks > 1 && FindShardLevel(run.config.shard) != ShardLevel::kNone) return bytes / options.ranks;
  return PartOf(options).index > 0 ? 0 : bytes;
}

// Returns the bytes of a tokenizer's files, the tables made from them, and Unicode tables.
int64_t TokenizerBytes(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return 0;
  int64_t files = 0;
  for (const auto& [name, bytes] : tokenizer->files()) files += std::ssize(bytes);
  return 3 * files + (int64_t{7} << 20);
}

// Returns the bytes of samples in memory, and of the batches in training and in prefetch.
int64_t DataBytes(const TrainingRun& run) {
  int64_t bytes = run.train.dataset->memory_bytes() + TokenizerBytes(run.data.train.text.tokenizer.get());
  if (run.has_eval() && !run.data.eval_is_part_of_train) bytes += run.eval.dataset->memory_bytes();
  const int64_t workers = std::max(run.options.num_workers, run.options.max_workers);
  const int64_t ahead = workers * run.options.prefetch_factor;
  const int64_t batches = std::min(run.options.epochs * run.steps.per_epoch, ahead + 1);
  return bytes + batches * BatchBytes(run.train, std::min(run.batch.global, run.train.dataset->size()));
}

// Returns the bytes of the best checkpoint's weights, from which the model is written.
int64_t ExportBytes(const TrainingRun& run, const PreparedModel& prepared) {
  if (run.config.export_weights != "best") return 0;
  int64_t bytes = 0;
  for (const WeightDecision& weight : prepared.weights)
    bytes += weight.trained || weight.reason == WeightReason::kStatistics ? weight.type.bytes() : 0;
  return KeepsAverage(run.config) ? 2 * bytes : bytes;
}

// Returns the number of samples of the short update that ends an epoch; 0 if there is none, or if batches vary in size.
int64_t LastBatch(const TrainingRun& run, const SessionOptions& options) {
  const bool comes = !run.options.drop_last && !run.tokens.on() && run.steps.total >= run.steps.per_epoch;
  const bool known = options.variable_inputs.empty() && !run.train.dataset->streams();
  return comes && known ? run.train.dataset->size() % run.batch.global : 0;
}

// Returns the bytes of an evaluation per sample of a micro-batch.
int64_t EvaluationBytesPerSample(const TrainingRun& run) {
  if (!run.has_eval()) return 0;
  return (run.options.num_workers * LoaderOptions().prefetch_factor + 1) * BatchBytes(run.eval, 1);
}

// Counts the lengths that at least one batch of the run is likely to be padded to. A batch of B samples in random order
// is padded to its longest sample: that is at most l with probability F(l)^B, where F is the distribution of the sample
// lengths.
int64_t CountLengths(const TrainingRun& run, const SessionOptions& options) {
  const Dataset& data = *run.train.dataset;
  if (options.variable_inputs.empty() || options.variable_extents > 1 || data.streams() || data.size() == 0) return 1;
  std::map<int64_t, int64_t> samples;
  const int64_t longest = GreatestExtents(options)[0];
  for (int64_t i = 0; i < data.size(); ++i) ++samples[RoundUpLength(data.Length(i), longest)];
  const bool alike = run.options.length_grouping || options.tokens.on();  // the samples of a batch have similar lengths
  const double b = alike ? 1 : static_cast<double>(run.batch.global);
  int64_t count = 0, shorter = 0;
  const auto reached = [&](int64_t n) {
    return std::pow(static_cast<double>(n) / static_cast<double>(data.size()), b);
  };
  for (const auto& [length, n] : samples) {
    const double batches = static_cast<double>(run.steps.total) * (reached(shorter + n) - reached(shorter));
    count += batches >= 0.5;
    shorter += n;
  }
  return std::max<int64_t>(1, count);
}

}  // namespace

int64_t RoomForCopy() { return static_cast<int64_t>(AvailableMemory()) / kFreeShare; }

void CountCallerMemory(const PreparedModel& prepared, int64_t room, SessionOptions* options, TrainingRun* run) {
  run->save = PlanSave(run->config, {SavedBytes(*run, *options), run->backend->ReadsHostMemory()}, room);
  options->caller_bytes = DataBytes(*run) + run->save.bytes + ExportBytes(*run, prepared);
  options->caller_bytes_per_sample = EvaluationBytesPerSample(*run);
  options->last_batch = LastBatch(*run, *options);
  options->variable_sizes = CountLengths(*run, *options);
  if (!run->has_eval()) return;
  options->evaluated_samples = run->eval.dataset->size();
  const ReportedSamples reported = PlanReportedSamples(prepared.loss, run->eval.specs, run->eval.dataset->size(),
                                                       run->batch.micro, options->fixed_batch);
  options->predicted_samples = run->data.synthetic ? 0 : std::min(reported.batch, options->evaluated_samples);
}

void CountSaves(SessionOptions* options, TrainingRun* run) {
  if (run->config.out.empty()) return;
  const int64_t room = options->recompute.memory_budget == 0 ? RoomForCopy() : 0;
  run->save = PlanSave(run->config, {run->state_bytes, run->backend->ReadsHostMemory()}, room);
  options->caller_bytes = run->save.bytes;
}

absl::Status TakeFittingRung(int64_t samples, SessionOptions* options, TrainingRun* run) {
  const BudgetedModel model{run->data.models, *run->backend};
  ASSIGN_OR_RETURN(std::string line, FitBudget(run->config, model, samples, options, &run->batch));
  if (!line.empty()) run->memory_lines.push_back(std::move(line));
  return absl::OkStatus();
}

absl::Status FitMemoryBudget(const PreparedModel& prepared, SessionOptions* options, TrainingRun* run) {
  const bool planned_here = options->ranks == 1 && !PartOf(*options).on();
  if (options->recompute.memory_budget == 0 || !planned_here) {
    CountCallerMemory(prepared, options->recompute.memory_budget == 0 ? RoomForCopy() : 0, options, run);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(TakeFittingRung(run->train.dataset->size(), options, run));
  run->optimizer.spec = options->optimizer;
  run->state_bytes = StateBytes(run->optimizer.spec, prepared.weights);
  ASSIGN_OR_RETURN(const int64_t room, FindRoom({run->data.models, *run->backend}, *options, run->batch.global));
  CountCallerMemory(prepared, room + run->save.bytes, options, run);
  return absl::OkStatus();
}

}  // namespace onnxtrain
