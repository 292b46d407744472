#include "optim/plan/micro_batch.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <utility>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/step/program/programs.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

// Allocates the weights of a graph as zeros; the values do not affect the time.
absl::Status AllocateWeights(const Graph& graph, Backend& backend, Arena* weights) {
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kFeed) weights->Add(input.name, graph.type(input.value));
  }
  return weights->Allocate(backend, "weights");
}

absl::StatusOr<std::vector<double>> MeasureSeconds(Programs& programs, CompiledProgram& program, Backend& backend) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  double total = 0;
  constexpr double kEnough = 0.3;
  while (seconds.size() < 20 && total < kEnough) {
    const auto begin = Clock::now();
    RETURN_IF_ERROR(programs.Run(program));
    RETURN_IF_ERROR(backend.Synchronize());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace

absl::StatusOr<Graph> BuildMicroGraph(PreparedModels& models, const SessionOptions& options) {
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   models.Prepare(MakePrepareOptions(options), options.micro_batch, true, false));
  return BuildMicro(prepared.model, prepared.loss, options.loss, options.micro_batch, {});
}

absl::StatusOr<std::vector<double>> MicroTimer::Time(DType compute) const {
  Arena weights;
  RETURN_IF_ERROR(AllocateWeights(graph_, backend_, &weights));
  Bindings state;
  for (const std::string& name : weights.names()) state[name] = weights.At(name);
  Programs programs(&backend_, compute, false, recompute_,
                    {.other_bytes = [this] { return static_cast<size_t>(session_bytes_); }});
  ASSIGN_OR_RETURN(const auto program, programs.Compile(graph_, {}, state));
  RETURN_IF_ERROR(programs.Run(*program));  // the first run faults memory in
  return MeasureSeconds(programs, *program, backend_);
}

absl::StatusOr<std::unique_ptr<Session>> PlanSession(const BudgetedModel& model, SessionOptions options,
                                                     int64_t global_batch) {
  options.plan_only = true;
  ASSIGN_OR_RETURN(auto session, Session::Create(model.models, &model.backend, std::move(options)));
  RETURN_IF_ERROR(session->Plan(global_batch));
  return session;
}

absl::StatusOr<SessionMemory> PlannedMemory(std::shared_ptr<PreparedModels> models, Backend& backend,
                                            SessionOptions options, int64_t micro_batch, int64_t global_batch) {
  options.micro_batch = micro_batch;
  ASSIGN_OR_RETURN(const auto session, PlanSession({std::move(models), backend}, std::move(options), global_batch));
  return session->memory();
}

namespace {

class Fit {
 public:
  Fit(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit) : peak_(peak), limit_(limit) {}

  absl::StatusOr<bool> Fits(int64_t size) {
    ASSIGN_OR_RETURN(const int64_t bytes, peak_(size));
    known_[size] = bytes;
    return bytes <= limit_;
  }

  // Extrapolates the line through the two sizes nearest to the limit.
  int64_t Guess() const {
    auto above = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.second > limit_; });
    if (above == known_.end()) --above;
    if (above == known_.begin()) ++above;
    const auto below = std::prev(above);
    const double slope =
        static_cast<double>(above->second - below->second) / static_cast<double>(above->first - below->first);
    if (slope <= 0) return above->first * 2;
    return below->first + static_cast<int64_t>(std::min(1e15, static_cast<double>(limit_ - below->second) / slope));
  }

 private:
  const std::function<absl::StatusOr<int64_t>(int64_t)>& peak_;
  const int64_t limit_;
  std::map<int64_t, int64_t> known_;
};

}  // namespace

absl::StatusOr<int64_t> LargestFitting(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit,
                                       int64_t most) {
  Fit fit(peak, limit);
  int64_t good = 0, bad = most + 1;
  for (int64_t first : {int64_t{1}, std::min<int64_t>(4, most)}) {
    ASSIGN_OR_RETURN(const bool fits, fit.Fits(first));
    (fits ? good : bad) = first;
    if (!fits && good == 0) return 0;
    if (!fits || most == 1) break;
  }
  // Guesses from the line, which takes one guess on each side of the limit if it is straight; then bisects.
  for (int guesses = 0; bad - good > 1; ++guesses) {
    constexpr int kGuesses = 6;
    const int64_t guess = guesses < kGuesses ? fit.Guess() + (guesses % 2) : good + (bad - good) / 2;
    const int64_t size = std::clamp(guess, good + 1, bad - 1);
    ASSIGN_OR_RETURN(const bool fits, fit.Fits(size));
    (fits ? good : bad) = size;
  }
  return good;
}

namespace {

// The share of memory kept free for what plans do not count: allocator rounding, thread stacks.
constexpr double kMargin = 0.05;

int64_t SaturatedProduct(size_t bytes, int64_t count) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t product;
  return __builtin_mul_overflow(bytes, count, &product) ? kMost : product;
}

}  // namespace

int64_t BatchBytes(const TrainData& data, int64_t samples) {
  size_t bytes = 0;
  for (const FeedSpec& feed : data.specs) bytes += feed.sample.bytes();
  return SaturatedProduct(bytes, samples);
}

absl::Status CheckBatchFits(const Dataset& dataset, int64_t samples) {
  size_t bytes = 0;
  for (const Column& column : dataset.columns()) bytes += column.sample.bytes();
  const int64_t needed = SaturatedProduct(bytes, std::min(samples, dataset.size()));
  const size_t available = AvailableMemory();
  if (static_cast<size_t>(needed) <= available) return absl::OkStatus();
  return Invalid("a batch of ", samples, samples == 1 ? " sample of " : " samples of ", bytes, " bytes needs ",
                 needed >> 20, " MiB, but only ", available >> 20, " MiB of memory are free (`batch_size`)");
}

namespace {

int64_t UsableMemory(const Backend& backend, const SessionOptions& options) {
  if (options.recompute.memory_budget > 0) return options.recompute.memory_budget;
  return static_cast<int64_t>(std::min<size_t>(backend.FreeMemory(), std::numeric_limits<int64_t>::max()));
}

// Replaces an error for lack of memory by one that names the smallest budget; returns other errors unchanged.
absl::Status NameLeastBudget(const absl::Status& refusal, const BudgetedModel& model, const SessionOptions& options,
                             int64_t global_batch) {
  if (!LeastBudget(refusal)) return refusal;
  ASSIGN_OR_RETURN(const int64_t least, FindLeastBudget(model, options, global_batch));
  return RefuseBudget(options.recompute.memory_budget, least, options.micro_batch);
}

}  // namespace

absl::StatusOr<int64_t> LargestMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                          const SessionOptions& options, int64_t most, int64_t global_batch) {
  if (options.fixed_batch > 0) return options.fixed_batch;
  SessionOptions planned = options;
  planned.recompute.memory_budget = 0;  // a size that fits without automatic recomputation
  const auto peak = [&](int64_t size) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const SessionMemory memory,
                     PlannedMemory(models, backend, planned, size, global_batch == 0 ? size : global_batch));
    return memory.total();
  };
  return LargestFitting(peak, static_cast<int64_t>(static_cast<double>(UsableMemory(backend, options)) * (1 - kMargin)),
                        most);
}

absl::StatusOr<BatchPlan> FitMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                        const SessionOptions& options, const BatchPlan& batch, int64_t samples) {
  ASSIGN_OR_RETURN(const int64_t micro,
                   LargestMicroBatch(models, backend, options, std::min(batch.global, samples), batch.global));
  if (micro > 0) {
    const int64_t count = CeilDiv(batch.global, micro);
    const int64_t even = options.fixed_batch > 0 ? micro : CeilDiv(batch.global, count);
    return BatchPlan{batch.global, even, count};
  }
  // One sample may still fit with recomputation.
  SessionOptions one = options;
  one.micro_batch = 1;
  const auto planned = PlannedMemory(models, backend, one, 1, batch.global);
  if (planned.ok() && planned->total() <= UsableMemory(backend, options))
    return BatchPlan{batch.global, 1, batch.global};
  if (!planned.ok())
    return Annotate(NameLeastBudget(planned.status(), {models, backend}, one, batch.global),
                    "`micro_batch_size` auto: not even one sample fits: ");
  return Invalid("`micro_batch_size` auto: one sample needs ", FormatBytes(static_cast<double>(planned->total())),
                 ", and there are ", FormatBytes(static_cast<double>(UsableMemory(backend, options))));
}

// The error of a refused budget names the bytes of one program; another program may need more. Raises the budget to the
// named bytes until all programs fit, which yields the smallest one.
absl::StatusOr<LeastPlan> PlanLeast(const BudgetedModel& model, SessionOptions options, int64_t global_batch) {
  int64_t& budget = options.recompute.memory_budget;
  for (budget = 1;;) {
    auto planned = PlanSession(model, options, global_batch);
    if (planned.ok()) return LeastPlan{budget, *std::move(planned)};
    const auto least = LeastBudget(planned.status());
    if (!least || *least <= budget) return planned.status();
    budget = *least;
  }
}

absl::StatusOr<int64_t> FindLeastBudget(const BudgetedModel& model, const SessionOptions& options,
                                        int64_t global_batch) {
  ASSIGN_OR_RETURN(const LeastPlan plan, PlanLeast(model, options, global_batch));
  return plan.budget;
}

// Plans without recomputation: a copy of the state is not worth any.
absl::StatusOr<int64_t> FindRoom(const BudgetedModel& model, SessionOptions options, int64_t global_batch) {
  const int64_t budget = options.recompute.memory_budget;
  const bool chooses =
      options.recompute.mode == RecomputeMode::kAuto || options.recompute.mode == RecomputeMode::kBudget;
  options.recompute = {.mode = chooses ? RecomputeMode::kNone : options.recompute.mode};
  const auto memory = PlannedMemory(model.models, model.backend, options, options.micro_batch, global_batch);
  if (absl::IsResourceExhausted(memory.status())) return 0;
  RETURN_IF_ERROR(memory.status());
  return std::max<int64_t>(0, PlannableBytes(budget) - memory->total());
}

}  // namespace onnxtrain
